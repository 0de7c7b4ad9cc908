"""A network as a row of layers, with the box that enters each and the way of a plane back through each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from prood.bounds.activations import ReLURule
from prood.bounds.affine import tile
from prood.bounds.box import Box
from prood.bounds.composite import SequentialRule
from prood.bounds.concrete import maximum, start
from prood.bounds.registry import Affine, Monotone, Plane, Pullback, relax, rule_for
from prood.bounds.tighter.joint import Joint

Choice = dict[int, Tensor]
"""Lower slopes of ReLUs by the number of the layer, each (R, *shape of the layer)."""

Refine = Callable[["Linear", Box], Box]
"""Given the relaxation of the layers before a ReLU, a smaller box for what enters it."""


def flatten(network: nn.Module) -> list[nn.Module]:
    """The layers one after the other; what is not a sequence stays as one. Activations are copied.

    The copies make them distinct where a network uses one several times: slopes are kept by layer.
    """
    rule = rule_for(network)
    if isinstance(rule, SequentialRule) and isinstance(network, nn.Sequential):
        return [layer for child in network for layer in flatten(child)]
    inner = getattr(network, "network", None)
    if isinstance(inner, nn.Sequential) and not isinstance(rule, Affine | Monotone):  # a wrapper: `same` verifies it
        return flatten(inner)
    return [copy.copy(network) if isinstance(rule, ReLURule) else network]


def usual(box: Box, *, middle: bool) -> Tensor:
    """The lower slopes that a ReLU takes unless it is told: those at the image, or at the middle of the interval."""
    at = box.middle if middle or not box.anchored else box.points
    return (at > 0).to(box.radius.dtype)


def same(one: Box, other: Box) -> bool:
    """Whether two ways of computing a box agree to the bit, as the network and its row of layers must."""
    pairs = ((one.centre, other.centre), (one.radius, other.radius))
    return all(a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs)


@dataclass(frozen=True)
class Linear:
    """The linear relaxation of a row of layers: a plane over the output becomes one over the images' boxes."""

    layers: tuple[nn.Module, ...]
    boxes: tuple[Box, ...]  # the one that enters each layer, and behind the last the output's
    pulls: tuple[Pullback, ...]
    owner: Tensor | None = None  # the images' rows, if a row is not the image of the same number
    cut: Mapping[int, Box] = field(default_factory=dict)  # boxes that the rows have of their own, by layer
    tilt: Tensor | None = None  # the slopes π of `Joint` for each row

    @classmethod
    def of(cls, layers: list[nn.Module], box: Box, refine: Refine | None = None, first: Refine | None = None) -> Linear:
        """Pass a box through; `refine` may replace what enters a ReLU behind another layer that is not affine.

        `first` is for the ReLU before which all layers are affine, whose box is exact unless it is a ball's; and for
        averages in front, which move less in an ℓ2 or ℓ1 ball than in the box around it.
        """
        result, bent = cls((), (box,), ()), False
        for layer in layers:
            rule, box = rule_for(layer), result.boxes[-1]
            better = refine if bent else first
            if better is not None and result.layers:  # of pixels all is known
                averages = not bent and tile(result.layers[-1]) is not None and tile(layer) is None
                box = better(result, box) if averages or isinstance(rule, ReLURule) else box
            bent = bent or not isinstance(rule, Affine)
            behind, pull = relax(layer, box)
            boxes = (*result.boxes[:-1], box, behind)
            result = cls((*result.layers, layer), boxes, (*result.pulls, pull))
        return result

    @cached_property
    def bends(self) -> tuple[int, ...]:
        """The numbers of the layers whose lower slopes can be chosen."""
        return tuple(i for i, layer in enumerate(self.layers) if isinstance(rule_for(layer), ReLURule))

    def box(self, number: int) -> Box:
        """The box of a layer, a row for each of ours."""
        if number in self.cut:
            return self.cut[number]
        return self.boxes[number] if self.owner is None else rows(self.boxes[number], self.owner)

    @cached_property
    def joint(self) -> Joint | None:
        """What the first convolution's units lose together."""
        return Joint.of(self.layers, self.boxes, self.bends)

    def some(self, index: Tensor) -> Linear:
        """The relaxation of some of the images."""
        boxes = tuple(rows(box, index) for box in self.boxes)
        pulls = tuple(relax(layer, box)[1] for layer, box in zip(self.layers, boxes, strict=False))
        return Linear(self.layers, boxes, pulls, tilt=None if self.tilt is None else self.tilt[index])

    def on(self, layers: Iterable[nn.Module], dtype: torch.dtype) -> Linear:
        """The same relaxation in plain arithmetic of another precision: to search with, not to prove."""
        boxes = tuple(plain(box, dtype) for box in self.boxes)
        pulls = tuple(relax(layer, box)[1] for layer, box in zip(layers, boxes, strict=False))
        return Linear(tuple(layers), boxes, pulls)

    def back(
        self, plane: Plane, extra: Choice, watch: Choice | None = None, *, joint: bool = False, until: int = 0
    ) -> Plane:
        """Pull a plane back to the images, or to what enters the layer `until`.

        `extra` slopes are added to those over what enters a layer.

        That keeps it an upper bound where they have the sign of the value: in β-CROWN (Wang et al. 2021), β·z with
        β ≥ 0 on z ≥ 0 and −β·z on z ≤ 0. Rounding the sum only changes β. `watch` collects the slopes over the
        outputs of layers with a choice and, as number −1, those over the images.
        """
        together, group = self.joint if joint else None, None
        for number in reversed(range(until, len(self.layers))):
            if watch is not None and number in self.bends:
                watch[number] = plane.slope
            if together is not None and number == together.number:
                group = together.group(plane.slope, self.box(number), self.owner)
            if number in self.cut:  # a box for each row
                plane = replace(self.pulls[number](replace(plane, owner=None)), owner=plane.owner)
            else:
                plane = self.pulls[number](plane)
            if number in extra:
                plane = plane.onto(plane.slope + extra[number], plane.offset)
            if together is not None and number == together.number - 1:
                assert group is not None
                plane = together.lower(plane, group, self.tilt)
        if watch is not None:
            watch[-1] = plane.slope
        return plane

    def bound(
        self,
        choice: Choice | None = None,
        extra: Choice | None = None,
        *,
        middle: bool = False,
        watch: Choice | None = None,
        joint: bool = False,
    ) -> Tensor:
        """The upper bound of the scalar output for each row (CROWN, Zhang et al. 2018), perhaps with `Joint`."""
        output = self.box(len(self.layers)).radius
        slopes = {self.layers[number]: slope for number, slope in (choice or {}).items()}
        plane = start(output, sound=self.boxes[0].sound, slopes=slopes, middle=middle, owner=self.owner)
        return maximum(self.boxes[0], self.back(plane, extra or {}, watch, joint=joint))


def rows(box: Box, index: Tensor) -> Box:
    """Some rows of an anchored box, or of one without points."""
    return replace(
        box,
        centre=torch.cat([box.points[index], box.middle[index]]) if box.n_points else box.centre[index],
        radius=box.radius[index],
        exact_upper=None if box.exact_upper is None else box.exact_upper[index],
        overflow=None if box.overflow is None else box.overflow[index],
        within=None if box.within is None else box.within.rows(index),
    )


def plain(box: Box, dtype: torch.dtype) -> Box:
    """The box as one of plain arithmetic."""
    return Box(box.centre.to(dtype), box.radius.to(dtype), box.anchored, within=box.within)


def intersect(box: Box, lower: Tensor, upper: Tensor) -> Box:
    """The part of a box that lies between other ends, as a box of the same kind; nothing grows.

    Where the ends leave nothing, no value is possible and any box will do.
    """
    better = (lower > box.lower) | (upper < box.upper)  # false for NaN
    low, high = torch.maximum(lower, box.lower), torch.minimum(upper, box.upper)
    inner = box.between(low, torch.maximum(low, high), box.points)
    better &= inner.radius <= box.radius
    middle = torch.where(better, inner.middle, box.middle)
    centre = torch.cat([box.points, middle]) if box.n_points else middle
    return replace(box, centre=centre, radius=torch.where(better, inner.radius, box.radius), exact_upper=None)
