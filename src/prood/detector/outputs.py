"""The model of a detector, what it computes about a batch before anything is decided, and its probabilities."""

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
    """What a model computes: logits for Eq. 3, g + Δ, scores, and the highest scores that g allows."""

    logits: Floats
    g: Floats
    scores: Floats
    caps: Floats


def outputs_of(model: ProoD | Discriminator, images: Tensor) -> Outputs:
    """A bare discriminator has no logits, and its score is g."""
    if isinstance(model, ProoD):
        logits, g = model.logits(images), model.in_logit(images)
        found = model.classified(logits, g), g, model.scored(logits, g), model.capped(g)
        return Outputs(*(one.double().cpu().numpy() for one in found))
    values = model.covered(images).double().cpu().numpy()
    return Outputs(np.zeros((len(values), 0)), values, values, values)


def outputs_over(model: ProoD | Discriminator, classes: int, stacks: Iterable[Tensor]) -> Outputs:
    """Outputs for all images in these batches."""
    parts = [Outputs(np.zeros((0, classes)), np.zeros(0), np.zeros(0), np.zeros(0))]
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


def probabilities(logits: Floats, p_in: Floats, labels: NDArray[np.int64], confidence: Floats) -> Floats:
    """Eq. 3. The label's probability is the confidence, from its own formula, which is the one that is certified."""
    weights = np.exp(logits - logits.max(1, keepdims=True))
    inside = weights / weights.sum(1, keepdims=True)
    found = inside * p_in[:, None] + (1 - p_in[:, None]) / logits.shape[1]
    np.put_along_axis(found, labels[:, None], confidence[:, None], 1)
    return np.asarray(found)
