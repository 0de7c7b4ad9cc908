"""Layers of a discriminator as a runtime without float64 convolutions can compute them.

ONNX Runtime has no convolution and no pooling in float64, but products of matrices and sums. So some layers have a twin
for the proof that computes the same sums with those, and a rule that does the same for its bounds; how the layer rounds
is what the stock rule says. Twins share their parameters with the layers.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import Box, NegativeLinear, Sums, register
from prood.bounds.activations import ReLURule
from prood.bounds.affine import AveragePoolRule, Conv2dRule
from prood.bounds.rounding import unit

Pair = tuple[int, int]


class Windows(nn.Conv2d):
    """A convolution as one product of matrices: the window of each output is a column."""

    @classmethod
    def of(cls, layer: nn.Conv2d) -> Windows:
        sizes = layer.kernel_size, layer.stride, layer.padding, layer.dilation
        twin = cls(layer.in_channels, layer.out_channels, *sizes, bias=layer.bias is not None)  # type: ignore[arg-type]
        twin.weight, twin.bias = layer.weight, layer.bias
        return twin

    def forward(self, x: Tensor) -> Tensor:
        total = self.product(x, self.weight)
        return total if self.bias is None else total + self.bias[:, None, None]

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """The convolution with another weight and no bias."""
        (top, left), (down, right) = cast(Pair, self.padding), cast(Pair, self.dilation)
        padded = F.pad(x, (left, left, top, top))
        sides = zip(padded.shape[2:], self.dilation, self.kernel_size, self.stride, strict=True)
        height, width = ((size - gap * (kernel - 1) - 1) // step + 1 for size, gap, kernel, step in sides)
        (high, wide), (step, stride) = self.kernel_size, self.stride
        tall, broad = step * (height - 1) + 1, stride * (width - 1) + 1  # from the first window's corner to the last's
        pieces = [
            padded[:, :, i * down : i * down + tall : step][:, :, :, j * right : j * right + broad : stride]
            for i in range(high)
            for j in range(wide)
        ]
        columns = torch.stack(pieces, 2).flatten(1, 2).flatten(2)  # (N, C·kh·kw, H'·W')
        return torch.unflatten(weight.flatten(1) @ columns, 2, (height, width))

    def adjoint(self, slope: Tensor, weight: Tensor, like: Tensor) -> Tensor:
        """Wᵀ s: every output sends its share to each input of its window; `like` is an input."""
        (top, left), (down, right) = cast(Pair, self.padding), cast(Pair, self.dilation)
        (high, wide), (height, width) = self.kernel_size, (slope.shape[2], slope.shape[3])
        shares = weight.flatten(1).T @ slope.flatten(2)
        shares = torch.unflatten(torch.unflatten(shares, 2, (height, width)), 1, (-1, high, wide))

        def placed(i: int, j: int) -> Tensor:
            share, (step, stride) = shares[:, :, i, j], self.stride
            if step > 1 or stride > 1:  # zeros between rows and between columns, and behind the last ones
                apart = F.pad(share[:, :, :, None, :, None], (0, stride - 1, 0, 0, 0, step - 1))
                share = apart.flatten(4, 5).flatten(2, 3)
            below, behind = (high - 1 - i) * down, (wide - 1 - j) * right
            return F.pad(share, (j * right, behind, i * down, below))

        total = functools.reduce(torch.add, (placed(i, j) for i in range(high) for j in range(wide)))
        rows, columns = top + like.shape[2], left + like.shape[3]
        # A stride may skip inputs at the end: nothing comes back to them.
        total = F.pad(total, (0, max(0, columns - total.shape[3]), 0, max(0, rows - total.shape[2])))
        return total[:, :, top:rows, left:columns]


@register(Windows)
class WindowsRule(Conv2dRule):
    def apply_absolute(self, layer: nn.Conv2d, radius: Tensor) -> Tensor:
        return cast(Windows, layer).product(radius, layer.weight.abs())

    @staticmethod
    def _transposed(layer: nn.Conv2d, slope: Tensor, like: Tensor, weight: Tensor) -> Tensor:
        return cast(Windows, layer).adjoint(slope, weight, like)

    def sums(self, layer: nn.Conv2d, live: Tensor) -> Sums:
        ones = torch.ones_like(layer.weight[:1, :1])
        terms = cast(Windows, layer).product(live.sum(1, keepdim=True), ones)
        offset = 0.0 if layer.bias is None else layer.bias.abs()[:, None, None]
        return Sums(terms, layer.weight[:, 0].numel(), layer.weight.abs().amax(), offset)


class Tiles(nn.AvgPool2d):
    """Average pooling over windows side by side, as a mean over axes."""

    @property
    def size(self) -> Pair:
        size = self.kernel_size
        return (size, size) if isinstance(size, int) else (size[0], size[1])

    def forward(self, x: Tensor) -> Tensor:
        (high, wide), (height, width) = self.size, x.shape[2:]
        x = x[:, :, : height // high * high, : width // wide * wide]
        return torch.unflatten(torch.unflatten(x, 3, (-1, wide)), 2, (-1, high)).mean((3, 5))


@register(Tiles)
class TilesRule(AveragePoolRule):
    def adjoint(self, layer: nn.Module, slope: Tensor, like: Tensor) -> Tensor:
        (high, wide), (height, width) = cast(Tiles, layer).size, slope.shape[2:]
        spread = (slope / (high * wide))[:, :, :, None, :, None].expand(-1, -1, -1, high, -1, wide)
        spread = spread.flatten(4, 5).flatten(2, 3)
        return F.pad(spread, (0, like.shape[3] - width * wide, 0, like.shape[2] - height * high))


class Rectifier(nn.ReLU):
    """A ReLU whose rule makes no use of memory in place."""


@register(Rectifier)
class RectifierRule(ReLURule):
    def _sound_interval(self, box: Box, leak: float) -> Box:
        # [c − r, c + r] stays as it is if c > r. Else it becomes [0, c + r] or the point 0, whose centre and radius are
        # both relu(c + r)/2, off by a rounding of the sum.
        half = (box.middle + box.radius).clamp(min=0) * 0.5
        active = box.middle > box.radius
        centre, radius = torch.where(active, box.middle, half), torch.where(active, box.radius, half)
        own = 8 * unit(radius)
        return replace(box.onto(centre, radius + own * radius + own * centre), positive=True)


class FixedNegative(NegativeLinear):
    """A `NegativeLinear` with its weights −exp(h) worked out, so that no runtime's exponential has a say in them."""

    fixed: Tensor

    @classmethod
    def of(cls, layer: NegativeLinear, kind: torch.dtype) -> FixedNegative:
        twin = cls(layer.in_features, layer.out_features)
        del twin.log_weight
        twin.bias = layer.bias
        twin.register_buffer("fixed", -layer.log_weight.detach().to(kind).exp())
        return twin

    @property
    def weight(self) -> Tensor:
        return self.fixed


def twin(layer: nn.Module) -> nn.Module:
    """What the proof passes boxes and planes through in place of a layer."""
    if isinstance(layer, nn.Conv2d):
        return Windows.of(layer)
    if isinstance(layer, nn.AvgPool2d):
        return Tiles(layer.kernel_size)
    if isinstance(layer, NegativeLinear):
        return FixedNegative.of(layer, torch.float64)
    return Rectifier() if isinstance(layer, nn.ReLU) else layer
