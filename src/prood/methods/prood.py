"""Semi-joint training of the classifier inside the joint model, with the discriminator held fixed (Eq. 8)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from prood.methods.base import Batch, Logs, Loss, Objective, Step, accuracy, interlace, separate
from prood.methods.declaring import option, register
from prood.models import ProoD, fuse
from prood.models.score import JointConfidence


@register
@dataclass(frozen=True)
class SemiJoint(Objective):
    """−log p(y|x) − weight · 1/K Σ_l log p(l|z) for the joint p of Eq. 3.

    Only f learns: training g or Δ along with it would trade the guarantee away. So g is computed without a graph,
    which also saves its backward pass.
    """

    name = "prood"
    title = "ProoD"
    summary = "a classifier inside the joint model, with a trained discriminator held fixed"
    kind = "joint"
    score = JointConfidence

    weight: float = option(1.0, "weight of the out-distribution's loss")

    def __call__(self, model: ProoD, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        images = interlace(batch_in.images, batch_out.images)
        with torch.no_grad():
            g = model.discriminator(images) + model.shift  # not `in_logit`, whose arithmetic is slower on GPUs
        loss_in, loss_out, logs = joint_losses(model.logits(images).float(), g.float(), batch_in)
        return loss_in + self.weight * loss_out, logs


def joint_losses(logits: Tensor, g: Tensor, batch_in: Batch) -> tuple[Tensor, Tensor, Logs]:
    """The two terms of Eq. 8 for interlaced logits and g: −log p(y|x) and −1/K Σ_l log p(l|z), averaged."""
    inside, outside = separate(fuse(logits, g))
    log_k = math.log(inside.shape[1])  # fuse() gives log(K·p): take log K off again
    loss_in = F.nll_loss(inside - log_k, batch_in.targets)
    loss_out = (log_k - outside).mean(1).mean()
    return loss_in, loss_out, {"loss_in": loss_in, "loss_out": loss_out, "accuracy": accuracy(inside, batch_in)}
