"""Planes that are zero outside of a small window: those of a convolution's units over the layers before it.

A unit of the third convolution sees 9×9 pixels. Its plane over 32×32 would be zeros to more than nine tenths, and there
are thousands of units: windows make their bounds about a hundred times cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds.activations import ReLURule
from prood.bounds.affine import AveragePoolRule, Conv2dRule, ReshapeRule, tile
from prood.bounds.box import Box
from prood.bounds.channelwise import BatchNormRule, NormaliseRule
from prood.bounds.concrete import maximum
from prood.bounds.convolution import Pair, pair
from prood.bounds.registry import Affine, Plane, rule_for
from prood.bounds.rounding import positive_sum
from prood.bounds.tighter.chain import Linear, usual


@dataclass(frozen=True)
class Place:
    """Where the windows of all rows lie: equal in size, each in the image of its owner, perhaps partly outside."""

    owner: Tensor  # (R,)
    top: Tensor
    left: Tensor
    height: int = 1
    width: int = 1

    def index(self, shape: torch.Size) -> Tensor:
        """The number of each pixel among all pixels of all images, (R, h, w); outside, one more than there are."""
        count, _, height, width = shape
        row = self.top[:, None] + torch.arange(self.height, device=self.top.device)
        column = self.left[:, None] + torch.arange(self.width, device=self.top.device)
        number = (self.owner[:, None, None] * height + row[:, :, None]) * width + column[:, None, :]
        inside = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None, :]
        return torch.where(inside, number, count * height * width)


class Pixels:
    """Something with a value for each pixel and channel of each image, to cut windows from; zero outside."""

    def __init__(self, values: Tensor) -> None:
        self.shape = values.shape
        self.flat = F.pad(values.permute(0, 2, 3, 1).reshape(-1, values.shape[1]), (0, 0, 0, 1))

    def cut(self, place: Place) -> Tensor:
        """(R, C, h, w)"""
        index = place.index(self.shape)
        return self.flat[index.flatten()].reshape(*index.shape, -1).permute(0, 3, 1, 2)


class WindowLayer:
    """How windows pass back through one layer."""

    def __init__(self, layer: nn.Module, box: Box) -> None:
        self.layer, self.box = layer, box
        self.rule: Any = rule_for(layer)

    @cached_property
    def parts(self) -> list[Pixels]:
        """Points, if there are any, middles and radii of the boxes, and the centres of their balls, if there are."""
        box = self.box
        parts = [box.points, box.middle, box.radius] if box.anchored else [box.middle, box.radius]
        return [Pixels(part) for part in (parts if box.within is None else [*parts, box.within.centre])]

    def cut(self, place: Place) -> Box:
        """The windows as boxes: then every rule and `maximum` work on them as they are."""
        parts, within = [part.cut(place) for part in self.parts], self.box.within
        if within is not None:
            within = replace(within, centre=parts.pop(), eps=within.eps[place.owner])
        *centre, radius = parts
        return replace(
            self.box, centre=torch.cat(centre), radius=radius, exact_upper=None, overflow=None, within=within
        )

    @cached_property
    def inside(self) -> Pixels:
        return Pixels(torch.ones_like(self.box.radius[:, :1]))

    @cached_property
    def paid(self) -> Pixels | None:
        """What a plane pays for the rounding of an affine layer, per unit of slope."""
        if not self.box.sound:
            return None
        rounding = self.rule._through(self.layer, self.box)[1]
        return None if rounding is None else Pixels(rounding.deployed + rounding.own)

    def pull(self, plane: Plane, place: Place) -> tuple[Plane, Place]:
        if not isinstance(self.rule, Affine):
            return self.rule.pullback(self.layer, self.cut(place), {})(plane), place
        offset = plane.offset + self.rule.constant(self.layer, plane.slope)
        if self.paid is not None:
            offset = offset + positive_sum(plane.slope.abs() * self.paid.cut(place))
        layer, slope = self.layer, plane.slope
        if isinstance(layer, nn.Conv2d):
            slope, (down, across), (above, before) = _transposed(layer, slope), layer.stride, cast(Pair, layer.padding)
        elif isinstance(layer, nn.AvgPool2d):
            (down, across), above, before = pair(layer.kernel_size), 0, 0
            slope = F.interpolate(slope, scale_factor=down, mode="nearest") / down**2
        else:
            return plane.onto(self.rule.adjoint(layer, slope, slope), offset), place
        # The inputs that the outputs in these windows are made of.
        place = Place(place.owner, place.top * down - above, place.left * across - before, *slope.shape[2:])
        return plane.onto(slope * self.inside.cut(place), offset), place


def _transposed(layer: nn.Conv2d, slope: Tensor) -> Tensor:
    """The transposed convolution of windows, without padding."""
    if layer.groups > 1:
        return F.conv_transpose2d(slope, layer.weight, None, layer.stride, 0, 0, layer.groups, layer.dilation)
    # One product of matrices: in float64, and without cuDNN, torch's own function goes from window to window.
    columns = (slope.flatten(2).transpose(1, 2) @ layer.weight.flatten(1)).transpose(1, 2)
    how = zip(slope.shape[2:], layer.stride, layer.dilation, layer.kernel_size, strict=True)
    size = tuple((side - 1) * stride + dilation * (kernel - 1) + 1 for side, stride, dilation, kernel in how)
    return F.fold(columns, size, layer.kernel_size, layer.dilation, 0, layer.stride)


def _has_windows(layer: nn.Module, box: Box) -> bool:
    rule = type(rule_for(layer))
    if box.radius.ndim != 4:
        return False
    if rule is Conv2dRule:
        assert isinstance(layer, nn.Conv2d)
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if rule is AveragePoolRule:
        return tile(layer) is not None
    if isinstance(layer, nn.Flatten):
        return False
    return rule in (ReLURule, NormaliseRule, BatchNormRule, ReshapeRule)


class Windows:
    """The way back for windows, or none where a layer lacks one."""

    def __init__(self, linear: Linear) -> None:
        self.steps = [WindowLayer(layer, box) for layer, box in zip(linear.layers, linear.boxes, strict=False)]
        self.possible = all(_has_windows(step.layer, step.box) for step in self.steps)

    def bound(self, plane: Plane, place: Place, used: dict[nn.Module, Tensor] | None) -> Tensor:
        """The largest value over its image's box of each row of a plane over a unit, with slopes (R, C, 1, 1).

        `used` collects the lower slopes that ReLUs in the windows take if the plane gives none.
        """
        for step in reversed(self.steps):
            if used is not None and isinstance(step.rule, ReLURule):
                used[step.layer] = usual(step.cut(place), middle=plane.middle)
            plane, place = step.pull(plane, place)
        return maximum(self.steps[0].cut(place), plane)

    @property
    def largest(self) -> int:
        """The values of the largest window on the way back."""
        size, most = 1, 1
        for step in reversed(self.steps):
            if isinstance(step.layer, nn.Conv2d):
                kernel, stride, dilation = map(max, (step.layer.kernel_size, step.layer.stride, step.layer.dilation))
                size = (size - 1) * stride + dilation * (kernel - 1) + 1
            elif isinstance(step.layer, nn.AvgPool2d):
                size *= pair(step.layer.kernel_size)[0]
            most = max(most, size**2 * step.box.radius.shape[1])
        return most
