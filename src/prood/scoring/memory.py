"""How many images at a time: what one image takes in the networks, against a budget; and how many threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from prood.detector import Detector
from prood.models.wrapped import wrapped_parts

MOST = 256
"""More images at a time do not help on a CPU, and hardly on a GPU."""
BOUNDED = 6
"""A bound keeps boxes and planes where a forward pass has one number."""
PROGRAM = 200
"""Numbers for each pixel of an image, inside a program that shows nothing of its layers."""


def batch_for(detector: Detector, memory: int, *, bounded: bool) -> int:
    """A batch that stays within `memory` bytes, at least one image."""
    values = _values(detector) * (BOUNDED if bounded else 1)
    return max(1, min(MOST, memory // (4 * values)))


def _values(detector: Detector) -> int:
    """The numbers that all layers give for one image, more than are there at any one time."""
    seen = [4 * prod(detector.shape)]

    def count(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            seen.append(output.numel())

    layers = [layer for layer in detector.model.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(count) for layer in layers if not isinstance(layer, torch.jit.ScriptModule)]
    try:
        detector.anywhere(torch.full((1, *detector.shape), 0.5))
    finally:
        for hook in hooks:
            hook.remove()
    programs = [part for part in wrapped_parts(detector.model) if part.facts.file is not None]
    return sum(seen) + sum(PROGRAM * prod(part.facts.preprocessing.image) for part in programs)


@contextmanager
def limited(threads: int | None) -> Iterator[None]:
    """Torch with this number of threads, within the block."""
    before = torch.get_num_threads()
    if threads is None or threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
