"""Outlier exposure (Hendrycks, Mazeika and Dietterich, 2019)."""

from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F

from prood.methods.base import Batch, Loss, Objective, Step, accuracy, interlace, separate
from prood.methods.declaring import option, register


@register
@dataclass(frozen=True)
class OutlierExposure(Objective):
    """−log p_f(y|x) − weight · 1/K Σ_l log p_f(l|z): uniform predictions on the out-distribution.

    Both batches go through the network together, so that batch norm sees their mixture.
    """

    name = "oe"
    title = "OE"
    summary = "outlier exposure, a classifier that is also taught to be unsure on the out-distribution"

    weight: float = option(1.0, "weight of the out-distribution's loss")

    def __call__(self, model: nn.Module, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        inside, outside = separate(model(interlace(batch_in.images, batch_out.images)))
        loss_in = F.cross_entropy(inside, batch_in.targets)
        loss_out = -F.log_softmax(outside, 1).mean(1).mean()
        logs = {"loss_in": loss_in, "loss_out": loss_out, "accuracy": accuracy(inside, batch_in)}
        return loss_in + self.weight * loss_out, logs
