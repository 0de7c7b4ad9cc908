"""Planes that are zero outside of a small window: those of a convolution's units over the layers before it.

A unit of the third convolution sees 9×9 pixels. Its plane over 32×32 would be zeros to more than nine tenths, and there
are thousands of units: windows make their bounds about a hundred times cheaper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds.activations import ReLURule
from prood.bounds.affine import AveragePoolRule, Conv2dRule, ReshapeRule, _is_tiling
from prood.bounds.box import Box
from prood.bounds.channelwise import BatchNormRule, NormaliseRule
from prood.bounds.concrete import maximum
from prood.bounds.registry import Affine, Plane, Slopes, rule_for
from prood.bounds.rounding import positive_sum
from prood.bounds.tighter.chain import Linear


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

    def spread(self, stride: tuple[int, int], padding: tuple[int, int], size: tuple[int, int]) -> Place:
        """The inputs that the outputs in these windows are made of."""
        top, left = self.top * stride[0] - padding[0], self.left * stride[1] - padding[1]
        return Place(self.owner, top, left, *size)


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
    def parts(self) -> tuple[Pixels, Pixels, Pixels | None]:
        box = self.box
        return Pixels(box.middle), Pixels(box.radius), Pixels(box.points) if box.anchored else None

    def cut(self, place: Place) -> Box:
        """The windows as boxes: then every rule and `maximum` work on them as they are."""
        middle, radius, points = (None if part is None else part.cut(place) for part in self.parts)
        assert middle is not None
        assert radius is not None
        centre = middle if points is None else torch.cat([points, middle])
        within = self.box.within
        if within is not None:
            within = replace(within, centre=self.ball_centre.cut(place), eps=within.eps[place.owner])
        return replace(self.box, centre=centre, radius=radius, exact_upper=None, overflow=None, within=within)

    @cached_property
    def ball_centre(self) -> Pixels:
        assert self.box.within is not None
        return Pixels(self.box.within.centre)

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
            pulled = self.rule.pullback(self.layer, self.cut(place), {})(plane)
            return pulled, place
        offset = plane.offset + self.rule.constant(self.layer, plane.slope)
        if self.paid is not None:
            offset = offset + positive_sum(plane.slope.abs() * self.paid.cut(place))
        slope, spread = self._adjoint(plane.slope, place)
        if spread is not place:
            slope = slope * self.inside.cut(spread)
        return plane.onto(slope, offset), spread

    def _adjoint(self, slope: Tensor, place: Place) -> tuple[Tensor, Place]:
        layer = self.layer
        if isinstance(layer, nn.Conv2d):
            slope = _transposed(layer, slope)
            assert not isinstance(layer.padding, str)
            (sh, sw), (ph, pw) = layer.stride, layer.padding
            return slope, place.spread((sh, sw), (ph, pw), (slope.shape[2], slope.shape[3]))
        if isinstance(layer, nn.AvgPool2d):
            size = _pool_size(layer)
            slope = F.interpolate(slope, scale_factor=size, mode="nearest") / size**2
            return slope, place.spread((size, size), (0, 0), (slope.shape[2], slope.shape[3]))
        return self.rule.adjoint(layer, slope, slope), place


def _transposed(layer: nn.Conv2d, slope: Tensor) -> Tensor:
    """The transposed convolution of windows, without padding."""
    if layer.groups > 1:
        return F.conv_transpose2d(
            slope, layer.weight, stride=layer.stride, groups=layer.groups, dilation=layer.dilation
        )
    # One product of matrices: in float64, and without cuDNN, torch's own function goes from window to window.
    columns = (slope.flatten(2).transpose(1, 2) @ layer.weight.flatten(1)).transpose(1, 2)
    size = tuple(
        (side - 1) * stride + dilation * (kernel - 1) + 1
        for side, stride, dilation, kernel in zip(
            slope.shape[2:], layer.stride, layer.dilation, layer.kernel_size, strict=True
        )
    )
    return F.fold(columns, size, layer.kernel_size, layer.dilation, 0, layer.stride)


def _pool_size(layer: nn.AvgPool2d) -> int:
    kernel = layer.kernel_size
    return kernel if isinstance(kernel, int) else kernel[0]


def _has_windows(layer: nn.Module, box: Box) -> bool:
    rule = type(rule_for(layer))
    if box.radius.ndim != 4:
        return False
    if rule is Conv2dRule:
        assert isinstance(layer, nn.Conv2d)
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if rule is AveragePoolRule:
        if not isinstance(layer, nn.AvgPool2d) or not _is_tiling(layer, _pool_size(layer)):
            return False
        return all(side % _pool_size(layer) == 0 for side in box.radius.shape[2:])
    return rule in (ReLURule, NormaliseRule, BatchNormRule) or (
        rule is ReshapeRule and not isinstance(layer, nn.Flatten)
    )


class Windows:
    """The way back for windows, or none where a layer lacks one."""

    def __init__(self, linear: Linear) -> None:
        self.steps = [WindowLayer(layer, box) for layer, box in zip(linear.layers, linear.boxes, strict=False)]
        self.possible = all(_has_windows(step.layer, step.box) for step in self.steps)

    def bound(
        self,
        slope: Tensor,
        place: Place,
        slopes: Slopes,
        *,
        middle: bool = False,
        used: dict[nn.Module, Tensor] | None = None,
    ) -> Tensor:
        """The largest value of each row's unit, given by its slopes (R, C, 1, 1) at a pixel, over its image's box.

        `slopes` are the lower slopes of ReLUs in the windows; `used` collects those that are used if none are given.
        """
        sound = self.steps[0].box.sound
        offset = torch.zeros(len(slope), dtype=torch.float64 if sound else slope.dtype, device=slope.device)
        plane = Plane(slope, offset, slopes, middle)
        for step in reversed(self.steps):
            if used is not None and isinstance(step.rule, ReLURule):
                box = step.cut(place)
                at = box.middle if middle or not box.anchored else box.points
                used[step.layer] = (at > 0).to(slope.dtype)
            plane, place = step.pull(plane, place)
        return maximum(self.steps[0].cut(place), plane)

    @property
    def largest(self) -> int:
        """The values of the largest window on the way back."""
        size, most = 1, 1
        for step in reversed(self.steps):
            if isinstance(step.layer, nn.Conv2d):
                kernel, stride, dilation = (
                    max(n) for n in (step.layer.kernel_size, step.layer.stride, step.layer.dilation)
                )
                size = (size - 1) * stride + dilation * (kernel - 1) + 1
            elif isinstance(step.layer, nn.AvgPool2d):
                size *= _pool_size(step.layer)
            most = max(most, size**2 * step.box.radius.shape[1])
        return most
