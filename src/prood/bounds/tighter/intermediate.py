"""CROWN bounds of the hidden units: what enters a ReLU, bounded by a backward pass from each unit (Zhang et al. 2018).

Intervals forget that the inputs of a layer depend on each other. A unit whose interval straddles zero costs a
relaxation; a backward pass from it, through the relaxations of the layers before, finds a smaller interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from prood.bounds.affine import tile
from prood.bounds.box import Box
from prood.bounds.concrete import maximum
from prood.bounds.registry import Plane, Slopes
from prood.bounds.tighter.alpha import descend, initial, select
from prood.bounds.tighter.chain import Linear, intersect
from prood.bounds.tighter.windows import Place, Windows


@dataclass(frozen=True)
class Units:
    """A `Refine`: tightens the units that straddle zero, or those among them that `wanted` names, by layer.

    Averages of pixels are tightened wherever they are: all that follows depends on how large their box is.

    `steps` of descent choose the lower slopes for each unit and end anew; `values` says how many numbers may be held
    at once.
    """

    values: int
    steps: int = 0
    wanted: Mapping[int, Tensor] | None = None
    windows: bool = True

    def __call__(self, before: Linear, box: Box) -> Box:
        lower, upper = box.lower.clone(), box.upper.clone()
        averages = tile(before.layers[-1]) is not None
        chosen = (lower < 0) & (upper > 0) | averages
        if self.wanted is not None:
            chosen &= self.wanted[len(before.layers)]
        if not chosen.any():
            return box
        windows = Windows(before) if self.windows and lower.ndim == 4 else None
        windows = windows if windows is not None and windows.possible else None
        if averages and windows is None:  # a plane over the whole image for each of them would cost too much
            return box
        largest = windows.largest if windows else max(entering.radius[0].numel() for entering in before.boxes)
        chunk = max(1, self.values // (8 * largest))  # a pullback holds eight tensors of a plane's size at once
        for part in torch.split(chosen.nonzero(), chunk):
            planes, where = _Planes(before, windows, box, part), tuple(part.unbind(1))
            for sign, ends in ((1.0, upper), (-1.0, lower)):
                bound = sign * _smallest(planes, sign, self.steps).to(ends.dtype)
                better = sign * bound < sign * ends[where]  # false for NaN
                ends[where] = torch.where(better, bound, ends[where])
        return intersect(box, lower, upper)


@dataclass(frozen=True)
class _Planes:
    """Of some units: over windows or, where a layer has no rule for those, over whole images."""

    before: Linear
    windows: Windows | None
    box: Box
    units: Tensor  # (R, 1 + dimensions): whose image, and where in it

    def bound(
        self, sign: float, slopes: Slopes, *, middle: bool = False, used: dict[nn.Module, Tensor] | None = None
    ) -> Tensor:
        """The upper bound of sign·unit; `used` collects the lower slopes that are used if none are given."""
        owner, *unit = self.units.unbind(1)
        radius = self.box.radius if self.windows is None else self.box.radius[:, :, :1, :1]
        slope = radius.new_zeros(len(owner), *radius.shape[1:])
        slope[(torch.arange(len(owner), device=owner.device), *(unit if self.windows is None else unit[:1]))] = sign
        offset = slope.new_zeros(len(owner), dtype=torch.float64 if self.box.sound else None)
        plane = Plane(slope, offset, slopes, middle)
        if self.windows is not None:
            return self.windows.bound(plane, Place(owner, top=unit[1], left=unit[2]), used)
        if used is not None:
            whole = initial(self.before, middle=middle)
            used.update({self.before.layers[number]: value[owner] for number, value in reversed(whole.items())})
        return maximum(self.before.boxes[0], self.before.back(replace(plane, owner=owner), {}))


def _smallest(planes: _Planes, sign: float, steps: int) -> Tensor:
    """The upper bound of sign·unit: by the slopes at the image, at the middle, and by descent from the better."""
    with torch.no_grad():
        starts: list[dict[nn.Module, Tensor]] = [{}, {}]
        bounds = [planes.bound(sign, {}, middle=middle, used=starts[middle]) for middle in (False, True)]
        bound = torch.minimum(*bounds)
    if not steps or not starts[0]:
        return bound
    start = select(bounds[0] <= bounds[1], *starts)
    best, _ = descend(lambda slopes, _: planes.bound(sign, slopes), start, steps)
    with torch.no_grad():
        return torch.minimum(bound, planes.bound(sign, best))
