"""Adversarial training: against the out-distribution (ACET, ATOM), and of the class itself."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.data import Images
from prood.errors import BadValue
from prood.methods.base import Adversarial, Batch, Logs, Loss, Step, accuracy, deployed, interlace, separate
from prood.methods.declaring import option, register
from prood.models.architectures import Spec
from prood.models.baselines import ExtraClass, NotExtra, not_last, with_extra_class


@register
@dataclass(frozen=True)
class ACET(Adversarial):
    """−log p_f(y|x) + weight · max_{‖u−z‖∞ ≤ ε} max_k log p_f(k|u): low confidence in balls around outliers.

    The paper (Hein, Andriushchenko and Bitterwolf, CVPR 2019) has weight λ = 1. The maximum over u is a gradient
    attack's, so nothing is proved: the score is the classifier's confidence, and its bound +∞. There the
    out-distribution is noise (permuted and smoothed images); here it is that of every other method. Both batches go
    through the network together, as in outlier exposure.
    """

    name = "acet"
    title = "ACET"
    summary = "a classifier that is taught to be unsure in balls around the out-distribution, by attacks"

    weight: float = option(1.0, "of the out-distribution's loss")

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


@register
@dataclass(frozen=True)
class ATOM(Adversarial):
    """−log p(y|x) + weight · max_{‖u−z‖∞ ≤ ε} −log p(K+1|u) for a classifier with a class more, for outliers.

    The score is log((1 − p(K+1|x)) / p(K+1|x)); the classes are told apart by the first K logits.

    Only informative outliers are trained on. Sorted from the one that looks most like the in-distribution, a fraction
    `quantile` is passed over, as too near, and the next fraction `mined` is taken. The paper (Chen, Li, Wu, Liang and
    Jha, ECML PKDD 2021) sorts 400,000 images before each epoch and takes 100,000; here each step mines its own batch,
    with the network as it stands. That is fresher, and what a step sees remains a function of its number alone; but a
    batch has fewer of the rare hard ones than the whole set, a step trains on `mined` times as many outliers as there
    are in-distribution images (in the paper on twice as many), and of several processes each sorts its own rows.
    """

    name = "atom"
    title = "ATOM"
    summary = "a classifier with a reject class, trained on mined adversarial outliers"
    score = NotExtra

    weight: float = option(1.0, "of the outliers' loss")
    quantile: float = option(0.125, "share of the outliers, the most in-distribution ones, that is skipped", high=1)
    mined: float = option(0.25, "share of the outliers, the next ones, that is trained on", high=1, above=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quantile + self.mined > 1:
            raise BadValue(f"quantile = {self.quantile} and mined = {self.mined} are together more than all outliers")

    def __call__(self, model: ExtraClass, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        eps = self.radius(step)
        mined = self.mine(model, batch_out)
        attacked = self.attack(model, mined, eps, lambda images: not_last(model.extended(images)))
        # Not interlaced, as there are fewer outliers; of several processes each has its share of both.
        logits = model.extended(torch.cat([batch_in.images, attacked]))
        inside, outside = logits.tensor_split([len(batch_in.images)])
        loss_in = F.cross_entropy(inside, batch_in.targets)
        extra = torch.full_like(outside[:, 0], outside.shape[1] - 1, dtype=torch.long)
        loss_out = F.cross_entropy(outside, extra)
        logs = {"loss_in": loss_in, "loss_out": loss_out, "eps": eps, "accuracy": accuracy(inside[:, :-1], batch_in)}
        return loss_in + self.weight * loss_out, logs

    def network(self, spec: Spec, inside: Images, outside: Images | None) -> ExtraClass:
        return with_extra_class(spec)

    def mine(self, model: ExtraClass, batch: Batch) -> Batch:
        """The outliers of the batch that are worth training on, with their noise."""
        with deployed(model), torch.no_grad():
            order = not_last(model.extended(batch.images)).argsort(descending=True, stable=True)
        count = max(1, round(self.mined * len(order)))
        first = min(round(self.quantile * len(order)), len(order) - count)
        kept = order[first : first + count]
        assert batch.noise is not None
        return Batch(batch.images[kept], noise=batch.noise[kept])


@register
@dataclass(frozen=True)
class Robust(Adversarial):
    """A classifier whose class an attacker cannot change easily; the out-distribution has no part in it.

    loss = "trades" (Zhang et al., ICML 2019):  −log p(y|x) + weight · max_{‖u−x‖∞ ≤ ε} KL(p(·|x) ‖ p(·|u)).
    loss = "pgd" (Madry et al., ICLR 2018):     max_{‖u−x‖∞ ≤ ε} −log p(y|u).

    The paper takes such a classifier from elsewhere, for App. K. The score is its confidence, without a certificate;
    combined with a discriminator (`prood combine`) it has one, and the same class for every image, attacked or not.
    """

    name = "robust"
    title = "Robust"
    summary = "a classifier that keeps its class under attack, by adversarial training on the in-distribution"
    needs_outside = False

    loss: Literal["trades", "pgd"] = option("trades", "trades, or pgd: the cross-entropy of attacked images alone")
    weight: float = option(6.0, "trades only: of the divergence between clean and attacked predictions")

    def __call__(self, model: nn.Module, batch_in: Batch, batch_out: Batch | None, step: Step) -> Loss:
        eps = self.radius(step)
        loss, logs = (self._trades if self.loss == "trades" else self._pgd)(model, batch_in, eps)
        return loss, logs | {"eps": eps}

    def _trades(self, model: nn.Module, batch: Batch, eps: Tensor) -> tuple[Tensor, Logs]:
        with deployed(model), torch.no_grad():
            clean = model(batch.images)
        attacked = self.attack(model, batch, eps, lambda images: divergence(clean, model(images)))
        logits, moved = separate(model(interlace(batch.images, attacked)))
        loss_in = F.cross_entropy(logits, batch.targets)
        loss_attacked = divergence(logits, moved).mean()
        logs = {"loss_in": loss_in, "loss_attacked": loss_attacked}
        logs |= {"accuracy": accuracy(logits, batch), "robust_accuracy": accuracy(moved, batch)}
        return loss_in + self.weight * loss_attacked, logs

    def _pgd(self, model: nn.Module, batch: Batch, eps: Tensor) -> tuple[Tensor, Logs]:
        attacked = self.attack(model, batch, eps, lambda u: F.cross_entropy(model(u), batch.targets, reduction="none"))
        moved = model(attacked)
        return F.cross_entropy(moved, batch.targets), {"robust_accuracy": accuracy(moved, batch)}


def divergence(logits: Tensor, others: Tensor) -> Tensor:
    """KL(p ‖ q) of the distributions with these logits, for each image."""
    p = F.log_softmax(logits, 1)
    return (p.exp() * (p - F.log_softmax(others, 1))).sum(1)
