"""Plain: the classifier's cross-entropy on the in-distribution."""

from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F

from prood.methods.base import Batch, Loss, Objective, Step, accuracy
from prood.methods.declaring import register


@register
@dataclass(frozen=True)
class Plain(Objective):
    """−log p_f(y|x), averaged over the batch."""

    name = "plain"
    title = "Plain"
    summary = "a classifier as usual"
    needs_outside = False

    def __call__(self, model: nn.Module, batch_in: Batch, batch_out: Batch | None, step: Step) -> Loss:
        logits = model(batch_in.images)
        loss = F.cross_entropy(logits, batch_in.targets)
        return loss, {"accuracy": accuracy(logits, batch_in)}
