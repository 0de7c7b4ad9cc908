"""What a detector says about images by name, one after the other: a damaged one is a line, and the others go on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prood.detector.answers import Answer
from prood.detector.detector import Detector
from prood.detector.named import Inputs
from prood.errors import ProodError


@dataclass(frozen=True)
class Answered:
    """An image's name and its answer, or why there is none."""

    image: str
    answer: Answer | None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The keys are always the same ones; what is not known is None."""
        names = ("label", "name", "confidence", "p_in", "accepted", "reason")
        return {"image": self.image, **{name: getattr(self.answer, name, None) for name in names}, "error": self.error}


def answered(detector: Detector, images: Inputs, *, batch: int = 64) -> Iterator[Answered]:
    """The detector's answer about each image, in order; `batch` images at a time."""
    for start in range(0, len(images), batch):
        group = range(start, min(start + batch, len(images)))
        stack, faults = _readable(images, group)
        answers = iter(detector.predict(stack, batch=batch))
        for place in group:
            fault = faults.get(place)
            yield Answered(images.name(place), None if fault else next(answers), fault)


def _readable(images: Inputs, group: range) -> tuple[Tensor, dict[int, str]]:
    """The images of these places that can be read, and by place what is wrong with the others."""
    try:
        return images.read(group), {}
    except ProodError:  # of which one, only reading them one by one tells
        found, faults = [torch.zeros(0, *images.shape)], {}
        for place in group:
            try:
                found.append(images.read([place]))
            except ProodError as error:
                faults[place] = str(error)
        return torch.cat(found), faults


def threshold_words(threshold: float | None, accept: float | None) -> str:
    """The threshold, and the share of the in-distribution that passes it, where that is known."""
    if threshold is None:
        return "none: nothing is rejected; set one with 'prood calibrate RUN SET --accept 0.95'"
    share = "" if accept is None else f": {100 * accept:g}% of in-distribution images are not"
    return f"an image is rejected below {threshold:g}{share}"
