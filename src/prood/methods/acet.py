"""ACET, adversarial confidence enhancing training (Hein, Andriushchenko and Bitterwolf, CVPR 2019)."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from prood.methods.base import Adversarial, Batch, Loss, Step, accuracy, interlace, separate
from prood.methods.declaring import option, register


@register
@dataclass(frozen=True)
class ACET(Adversarial):
    """−log p_f(y|x) + weight · max_{‖u−z‖∞ ≤ ε} max_k log p_f(k|u): low confidence in balls around outliers.

    The paper (Hein, Andriushchenko and Bitterwolf, CVPR 2019) has weight λ = 1. The maximum over u is a gradient
    attack's, so nothing is proved: the score is the classifier's confidence, and its bound +∞. There the
    out-distribution is noise (permuted and smoothed images); here it is the out-distribution of every other method.
    Both batches go through the network together, as in outlier exposure.
    """

    name = "acet"
    title = "ACET"
    summary = "a classifier that is taught to be unsure in balls around the out-distribution, by attacks"

    weight: float = option(1.0, "weight of the out-distribution's loss")

    def __call__(self, model: nn.Module, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        eps = self.radius(step)
        attacked = self.attack(model, batch_out, eps, lambda images: log_confidence(model(images)))
        inside, outside = separate(model(interlace(batch_in.images, attacked)))
        loss_in = F.cross_entropy(inside, batch_in.targets)
        loss_out = log_confidence(outside).mean()
        logs = {"loss_in": loss_in, "loss_out": loss_out, "eps": eps, "accuracy": accuracy(inside, batch_in)}
        return loss_in + self.weight * loss_out, logs


def log_confidence(logits: Tensor) -> Tensor:
    """max_k log p(k|x)."""
    return F.log_softmax(logits, 1).amax(1)
