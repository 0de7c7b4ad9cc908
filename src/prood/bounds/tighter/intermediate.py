"""CROWN bounds of the hidden units: what enters a ReLU, bounded by a backward pass from each unit (Zhang et al. 2018).

Intervals forget that the inputs of a layer depend on each other. A unit whose interval straddles zero costs a
relaxation; a backward pass from it, through the relaxations of the layers before, finds a smaller interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prood.bounds.box import Box
from prood.bounds.concrete import maximum
from prood.bounds.registry import Plane, Slopes
from prood.bounds.tighter.alpha import descend, initial, select
from prood.bounds.tighter.chain import Linear, intersect
from prood.bounds.tighter.windows import Place, Windows

_TEMPORARY = 8
"""Tensors of a plane's size that a pullback holds at once."""


@dataclass(frozen=True)
class Units:
    """A `Refine`: tightens the units that straddle zero, or those among them that `wanted` names, by layer.

    `steps` of descent choose the lower slopes for each unit and end anew; `values` says how many numbers may be held
    at once.
    """

    values: int
    steps: int = 0
    wanted: Mapping[int, Tensor] | None = None
    windows: bool = True

    def __call__(self, before: Linear, box: Box) -> Box:
        lower, upper = box.lower.clone(), box.upper.clone()
        chosen = (lower < 0) & (upper > 0)
        if self.wanted is not None:
            chosen &= self.wanted[len(before.layers)]
        if not chosen.any():
            return box
        windows = Windows(before)
        windowed = self.windows and windows.possible and lower.ndim == 4
        largest = windows.largest if windowed else max(b.radius[0].numel() for b in before.boxes)
        chunk = max(1, self.values // (_TEMPORARY * largest))
        for part in torch.split(chosen.nonzero(), chunk):
            rows = _Windowed(windows, box, part) if windowed else _Dense(before, box, part)
            where = tuple(part.unbind(1))
            for sign, ends in ((1.0, upper), (-1.0, lower)):
                bound = sign * _smallest(rows, sign, self.steps).to(ends.dtype)
                better = sign * bound < sign * ends[where]  # false for NaN
                ends[where] = torch.where(better, bound, ends[where])
        return intersect(box, lower, upper)


def _smallest(rows: _Windowed | _Dense, sign: float, steps: int) -> Tensor:
    """The upper bound of sign·unit: by the slopes at the image, at the middle, and by descent from the better."""
    with torch.no_grad():
        starts: list[dict[nn.Module, Tensor]] = [{}, {}]
        bounds = [rows.bound(sign, {}, middle=middle, used=starts[middle]) for middle in (False, True)]
        bound = torch.minimum(*bounds)
    if not steps or not starts[0]:
        return bound
    layers = list(starts[0])
    first, second = (dict(enumerate(start.values())) for start in starts)
    start = select(bounds[0] <= bounds[1], first, second)

    def by_layer(choice: Mapping[int, Tensor]) -> dict[nn.Module, Tensor]:
        return {layers[number]: slope for number, slope in choice.items()}

    best, _ = descend(lambda choice, _: rows.bound(sign, by_layer(choice)), start, steps)
    with torch.no_grad():
        return torch.minimum(bound, rows.bound(sign, by_layer(best)))


@dataclass(frozen=True)
class _Windowed:
    windows: Windows
    box: Box
    units: Tensor

    def bound(
        self, sign: float, slopes: Slopes, *, middle: bool = False, used: dict[nn.Module, Tensor] | None = None
    ) -> Tensor:
        owner, channel, top, left = self.units.unbind(1)
        slope = self.box.radius.new_zeros(len(owner), self.box.radius.shape[1], 1, 1)
        slope[torch.arange(len(owner), device=owner.device), channel] = sign
        return self.windows.bound(slope, Place(owner, top, left), slopes, middle=middle, used=used)


@dataclass(frozen=True)
class _Dense:
    """The same with planes over whole images, for layers without a rule for windows."""

    before: Linear
    box: Box
    units: Tensor

    def bound(
        self, sign: float, slopes: Slopes, *, middle: bool = False, used: dict[nn.Module, Tensor] | None = None
    ) -> Tensor:
        owner, *unit = self.units.unbind(1)
        slope = self.box.radius.new_zeros(len(owner), *self.box.radius.shape[1:])
        slope[(torch.arange(len(owner), device=owner.device), *unit)] = sign
        offset = torch.zeros(len(owner), dtype=torch.float64 if self.box.sound else slope.dtype, device=slope.device)
        if used is not None:
            whole = initial(self.before, middle=middle)
            used.update({self.before.layers[number]: value[owner] for number, value in reversed(whole.items())})
        return maximum(self.before.boxes[0], self.before.back(Plane(slope, offset, slopes, middle, owner), {}))
