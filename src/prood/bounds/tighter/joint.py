"""What the chords of neighbouring units lose together: a relaxation of several units at once (Singh et al. 2019).

A plane with slope s > 0 over a ReLU takes the chord over its interval, which lies above the ReLU by the tent

    t(z) = min(gap + chord·z, gap − (1 − chord)·z) ≥ 0,

and t = 0 only where z is at an end of its interval. The units of a first convolution at one pixel see the same few
inputs x in a box around c, and no input puts all of them at an end. Their sum T = Σ s·t(z) is a minimum of 2ᵏ affine
functions of x, so for any slopes π the largest δ with T(x) ≥ δ + π·(x − c) on the box has a closed form, and the plane
may be lowered by δ + π·(x − c). Every π is a proof; a good one is found by descent.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds.affine import Conv2dRule
from prood.bounds.box import Box
from prood.bounds.registry import Affine, Plane, rule_for
from prood.bounds.rounding import positive_sum

GROUP = 6
"""Units of a group, k: those at a pixel that pay most. The time doubles with each."""

_OWN = 1e-12
"""Our own rounding in float64, relative to the sizes of sums of a thousand terms, several times over."""


@dataclass(frozen=True)
class Group:
    """The units of each pixel that pay most, for each row of a plane: (R, P, k), weights (R, P, k, n)."""

    steep: Tensor
    chord: Tensor
    gap: Tensor
    middle: Tensor  # z at c
    weight: Tensor
    radius: Tensor  # (R, P, n), of the inputs
    lost: Tensor | None  # (R, P): what rounding may take from T

    @property
    def scale(self) -> Tensor:
        """The slopes of T are at most these, and so are those of a sensible π; (R, P, n)."""
        return (self.steep[..., None] * self.weight.abs()).sum(2)

    def least(self, tilt: Tensor | None) -> Tensor:
        """δ for each pixel, (R, P), at slopes π of (R, P, n)."""
        with torch.no_grad():
            best = self._worst(tilt)
        least = self._at(best, tilt)  # once more, with a gradient
        if self.lost is None:
            return least
        sizes = least.abs() if tilt is None else least.abs() + (tilt.abs() * self.radius).sum(2)
        return least - self.lost - 4 * _OWN * sizes

    def _worst(self, tilt: Tensor | None) -> Tensor:
        """Which of the 2ᵏ affine functions has the smallest minimum over the box; bit i is unit i's side."""
        products, heights = self.steep[..., None] * self.weight, self.steep * self.middle
        slope = torch.einsum("rpk,rpkn->rpn", self.chord, products)
        slope = slope if tilt is None else slope - tilt
        constant = (self.steep * self.gap + self.chord * heights).sum(2)
        value = constant - (slope.abs() * self.radius).sum(2)
        best, pattern = torch.zeros_like(value, dtype=torch.long), 0
        for count in range(1, 2 ** self.steep.shape[2]):
            unit = (count & -count).bit_length() - 1  # Gray's order: one unit changes sides at a time
            pattern ^= 1 << unit
            sign = -1 if pattern >> unit & 1 else 1
            slope = slope.add_(products[:, :, unit], alpha=sign)
            constant = constant.add_(heights[:, :, unit], alpha=sign)
            new = constant - (slope.abs() * self.radius).sum(2)
            best = torch.where(new < value, pattern, best)
            value = torch.minimum(new, value)
        return best

    def _at(self, pattern: Tensor, tilt: Tensor | None) -> Tensor:
        """The smallest value of one of the 2ᵏ affine functions, less π·(x − c), over the box."""
        bits = (pattern[..., None] >> torch.arange(self.steep.shape[2], device=pattern.device)) & 1
        side = self.steep * (self.chord - bits)
        slope = torch.einsum("rpk,rpkn->rpn", side, self.weight)
        constant = (self.steep * self.gap + side * self.middle).sum(2)
        return constant - ((slope if tilt is None else slope - tilt).abs() * self.radius).sum(2)


@dataclass(frozen=True)
class Joint:
    """The first convolution, seen from the ReLU behind it."""

    number: int  # of the ReLU
    weight: Tensor
    how: tuple[tuple[int, ...], ...]  # kernel size, dilation, padding, stride
    inputs: Box
    radius: Tensor  # (B, P, n): the radius of the inputs of each pixel of the output
    middle: Tensor  # (B, C, P): Wc + b
    lost: Tensor | None  # (B, C, P): how far a unit may lie from exact arithmetic; in plain arithmetic that is ignored

    @classmethod
    def of(cls, layers: tuple[nn.Module, ...], boxes: tuple[Box, ...], bends: tuple[int, ...]) -> Joint | None:
        """None where the first ReLU is not right behind a convolution, or something before that is not affine."""
        number = bends[0] if bends else 0
        layer = layers[number - 1]
        if not number or any(not isinstance(rule_for(before), Affine) for before in layers[:number]):
            return None
        rule = rule_for(layer)
        if type(rule) is not Conv2dRule or not isinstance(layer, nn.Conv2d) or isinstance(layer.padding, str):
            return None
        if layer.groups > 1 or layer.padding_mode != "zeros" or layer.weight[0].numel() > 1000:
            return None
        box, lost = boxes[number - 1], None
        radius = box.radius
        if box.sound:
            radius = radius + 1e-15 * box.size  # its ends are a rounding further out
            rounding = rule._through(layer, box)[1]
            assert rounding is not None
            offset = 0.0 if layer.bias is None else layer.bias.abs()[:, None, None]
            lost = (rounding.deployed + _OWN * (rule.apply_absolute(layer, box.size) + offset)).flatten(2)
        how = (layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        radius, middle = F.unfold(radius, *how).transpose(1, 2), layer(box.middle).flatten(2)
        return cls(number, layer.weight.flatten(1), how, box, radius, middle, lost)

    def group(self, slope: Tensor, box: Box, owner: Tensor | None) -> Group:
        """For slopes (R, C, H, W) over the ReLU's outputs and the box (R, …) that enters it."""
        lower, upper, slope = box.lower.flatten(2), box.upper.flatten(2), slope.flatten(2)
        paying = (lower < 0) & (upper > 0) & (slope > 0)
        chord = torch.where(paying, upper / (upper - lower), 0)
        gap, steep = -chord * lower, torch.where(paying, slope, 0)
        _, units = (steep * gap).topk(min(GROUP, slope.shape[1]), dim=1)  # (R, k, P)

        def of_units(values: Tensor) -> Tensor:
            return values.gather(1, units).transpose(1, 2)

        def of_rows(values: Tensor) -> Tensor:
            return values if owner is None else values[owner]

        steep = of_units(steep)
        weight = self.weight[units.transpose(1, 2)]
        # A tent changes by no more than its argument.
        lost = None if self.lost is None else (steep * of_units(of_rows(self.lost))).sum(2) * (1 + _OWN)
        middle = of_units(of_rows(self.middle))
        return Group(steep, of_units(chord), of_units(gap), middle, weight, of_rows(self.radius), lost)

    def lower(self, plane: Plane, group: Group, tilt: Tensor | None) -> Plane:
        """A plane over the convolution's inputs, lowered by δ + π·(x − c) for each pixel."""
        least = group.least(tilt)
        if tilt is None:
            saved = least.clamp(min=0).sum(1)
            return plane.onto(plane.slope, plane.offset - saved * (1 - (least.shape[1] + 64) * 2.0**-52))
        slope, centre = self._spread(tilt), plane.of(self.inputs.middle)
        offset = plane.offset - least.sum(1) + (slope * centre).flatten(1).sum(1)
        if self.lost is not None:  # our own sums: of δ, of π·c, and of the slopes
            sizes = (plane.slope.abs() + self._spread(tilt.abs())) * plane.of(self.inputs.size)
            terms = sizes.shape[1:].numel() + least.shape[1] + 64
            offset = offset + 4 * terms * 2.0**-52 * (positive_sum(sizes) + positive_sum(least.abs()))
        return plane.onto(plane.slope - slope, offset)

    def _spread(self, values: Tensor) -> Tensor:
        """What belongs to the inputs of each pixel, (R, P, n), added up at each input."""
        return F.fold(values.transpose(1, 2), self.inputs.radius.shape[2:], *self.how)
