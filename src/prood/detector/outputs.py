"""The model of a detector, what it computes about a batch before anything is decided."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prood.data.images import Shape
from prood.errors import BadValue, Diverged, Mismatch, first_line
from prood.models import Discriminator, ProoD
from prood.models.confidence import Floats, check_logits
from prood.models.constancy import patterns


def model_of(model: nn.Module, discriminator: Discriminator | None, shift: float | None) -> ProoD | Discriminator:
    """A joint model or a bare discriminator as it is, or the joint model of a classifier and a discriminator."""
    if isinstance(model, ProoD | Discriminator):
        if discriminator is not None or shift is not None:
            raise BadValue("this is a joint model already: pass the bare classifier to change the other parts")
        return model
    if not isinstance(model, nn.Module):
        raise BadValue(f"a detector is made from a model, not from {type(model)}: prood.load(…) or Detector.load(…)")
    if discriminator is None:
        raise BadValue("a classifier needs a discriminator beside it: Detector(classifier, discriminator, shift=…)")
    return ProoD(model, discriminator, 0.0 if shift is None else shift)


class Outputs(NamedTuple):
    """What a model computes: labels, logits for Eq. 3, g + Δ, scores, and the highest scores that g allows.

    With 1,000 classes the logits are most of it. They are kept in float32; float64 becomes differences to the largest.
    """

    labels: NDArray[np.int64]
    logits: NDArray[np.float32]
    g: Floats
    scores: Floats
    caps: Floats


def outputs_of(model: ProoD | Discriminator, images: Tensor) -> Outputs:
    """A bare discriminator has no logits, its labels are −1, and its score is g."""
    if isinstance(model, ProoD):
        logits, g = model.logits(images), model.in_logit(images)
        found, classified = (g, model.scored(logits, g), model.capped(g)), model.classified(logits, g)
        labels = classified.argmax(1).cpu().numpy()
        if classified.dtype == torch.float64:
            classified = classified - classified.amax(1, keepdim=True)
        return Outputs(labels, classified.float().cpu().numpy(), *(one.double().cpu().numpy() for one in found))
    values = model.covered(images).double().cpu().numpy()
    return Outputs(np.full(len(values), -1), np.zeros((len(values), 0), np.float32), values, values, values)


def outputs_over(model: ProoD | Discriminator, classes: int, stacks: Iterable[Tensor]) -> Outputs:
    """Outputs for all images in these batches."""
    none = np.zeros(0)
    parts = [Outputs(np.zeros(0, np.int64), np.zeros((0, classes), np.float32), none, none, none)]
    for stack in stacks:
        parts.append(outputs_of(model, stack))
        if np.isnan(parts[-1].scores).any():
            raise Diverged("the model's confidence is NaN: check the weights for NaN and infinity")
    return Outputs(*(np.concatenate(some) for some in zip(*parts, strict=True)))


@torch.no_grad()
def classes_of(model: ProoD | Discriminator, shape: Shape, device: torch.device) -> int:
    """The number of classes, 0 of a bare discriminator; some images show that both networks take such images."""
    try:
        shown = patterns(shape)[::7].to(device)  # four, of different kinds
        if isinstance(model, ProoD):
            check_logits(model.logits(shown))
        return int(outputs_of(model, shown).logits.shape[1])
    except (RuntimeError, ValueError) as error:
        raise Mismatch(f"the model does not take images of shape {shape}: {first_line(error)}") from None
