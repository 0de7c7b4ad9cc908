"""Rules for affine layers: linear, convolution, average pooling, reshaping."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds.box import Box, widen
from prood.bounds.convolution import NARROW, Pair, narrow_convolution, pair
from prood.bounds.layers import BlockedLinear, NegativeLinear
from prood.bounds.registry import Affine, UnsupportedLayer, register
from prood.bounds.rounding import EXACT, SMALLEST, Rounding, Sums


def transpose(function: Callable[[Tensor], Tensor], slope: Tensor, like: Tensor) -> Tensor:
    """Apply the transpose of a linear function, whatever its padding and strides, by differentiating it.

    By `vjp` and not by `grad`, which does not work in inference mode.
    """
    pull = torch.func.vjp(function, torch.zeros_like(like))[1]
    return cast(Tensor, pull(slope)[0])


@register(nn.Linear)
class LinearRule(Affine[nn.Linear]):
    def apply_absolute(self, layer: nn.Linear, radius: Tensor) -> Tensor:
        return F.linear(radius, layer.weight.abs())

    def adjoint(self, layer: nn.Linear, slope: Tensor, like: Tensor) -> Tensor:
        return slope @ layer.weight

    def constant(self, layer: nn.Linear, slope: Tensor) -> Tensor | float:
        return 0.0 if layer.bias is None else (slope * layer.bias).flatten(1).sum(1)

    def adjoint_absolute(self, layer: nn.Linear, slope: Tensor, like: Tensor) -> Tensor:
        return slope @ layer.weight.abs()

    def sums(self, layer: nn.Linear, live: Tensor) -> Sums:
        offset = 0.0 if layer.bias is None else layer.bias.abs()
        return Sums(live.sum(-1, keepdim=True), layer.out_features, layer.weight.abs().amax(), offset)


@register(BlockedLinear)
class BlockedLinearRule(LinearRule):
    def apply_absolute(self, layer: nn.Linear, radius: Tensor) -> Tensor:
        # In blocks: our own sums must round as little as the layer's.
        return cast(BlockedLinear, layer).product(radius, layer.weight.abs())

    def sums(self, layer: nn.Linear, live: Tensor) -> Sums:
        assert isinstance(layer, BlockedLinear)
        if layer.training:  # a single sum, as it stands; this covers the one in blocks, too
            return super().sums(layer, live)
        blocks = live.reshape(len(live), layer.in_features // layer.block, layer.block).sum(2)
        # A block of n terms rounds n times what its terms may reach, and over all blocks that is Σ|wᵢxᵢ| at most.
        within, terms = blocks.amax(1, keepdim=True), (blocks > 0).sum(1, keepdim=True).to(live.dtype)
        return replace(super().sums(layer, live), terms=terms, within=within)


@register(NegativeLinear)
class NegativeLinearRule(LinearRule):
    """Only lower bounds below it enter its upper bound, b − exp(h)·lower.

    Taken directly, because −exp(h)·c + exp(h)·r would leave a rounding error where both cancel: a bound that should be
    b, the value at which g saturates, must not come out a little below it.
    """

    def _through(self, layer: nn.Linear, box: Box) -> tuple[Box, Rounding | None]:
        result, rounding = super()._through(layer, box)
        if not box.sound:
            return replace(result, exact_upper=widen(self.apply(layer, box.lower))), rounding
        return self._capped(layer, box, result), rounding

    def _inflated(self, layer: nn.Linear, box: Box) -> Box:
        return self._capped(layer, box, super()._inflated(layer, box))

    @staticmethod
    def _capped(layer: nn.Linear, box: Box, result: Box) -> Box:
        if not box.positive:
            return result
        # Nothing positive is ever added to the bias if no input is negative, and rounding keeps the order. A negative
        # bias that is subnormal may be flushed to zero.
        cap = torch.where(layer.bias.abs() < SMALLEST, layer.bias.clamp(min=0), layer.bias)
        return replace(result, exact_upper=torch.minimum(result.upper, cap))

    def sums(self, layer: nn.Linear, live: Tensor) -> Sums:
        # The weights are exponentials, computed anew in each forward pass by whatever library is there: off by four
        # units in the last place, eight of the roundoff.
        return replace(super().sums(layer, live), extra=8)


@register(nn.Conv2d)
class Conv2dRule(Affine[nn.Conv2d]):
    """Any stride, padding (numbers, "same", "valid"), padding mode, dilation and groups."""

    def apply(self, layer: nn.Conv2d, x: Tensor) -> Tensor:
        if not _is_narrow(layer, x):
            return super().apply(layer, x)
        result = _convolve(layer, x, layer.weight)
        return result if layer.bias is None else result + layer.bias.to(result.dtype)[:, None, None]

    def apply_absolute(self, layer: nn.Conv2d, radius: Tensor) -> Tensor:
        return _convolve(layer, radius, layer.weight.abs())

    def adjoint(self, layer: nn.Conv2d, slope: Tensor, like: Tensor) -> Tensor:
        return self._transposed(layer, slope, like, layer.weight)

    def adjoint_absolute(self, layer: nn.Conv2d, slope: Tensor, like: Tensor) -> Tensor:
        return self._transposed(layer, slope, like, layer.weight.abs())

    @staticmethod
    def _transposed(layer: nn.Conv2d, slope: Tensor, like: Tensor, weight: Tensor) -> Tensor:
        if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            return transpose(lambda x: _convolve(layer, x, weight), slope, like)
        padding = cast(Pair, layer.padding)
        sides = zip(
            like.shape[2:], slope.shape[2:], layer.stride, padding, layer.dilation, layer.kernel_size, strict=True
        )
        missing = tuple(
            size - ((side - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1)
            for size, side, stride, pad, dilation, kernel in sides
        )
        return F.conv_transpose2d(slope, weight, None, layer.stride, padding, missing, layer.groups, layer.dilation)

    def constant(self, layer: nn.Conv2d, slope: Tensor) -> Tensor | float:
        return 0.0 if layer.bias is None else (slope.sum((2, 3)) * layer.bias).sum(1)

    def sums(self, layer: nn.Conv2d, live: Tensor) -> Sums:
        weight = layer.weight
        terms: Tensor | float = weight[0].numel()
        if layer.groups == 1 and layer.padding_mode == "zeros":
            # A window's inputs that are not zero, counted by a convolution with a single channel.
            ones = torch.ones_like(weight[:1, :1])
            terms = F.conv2d(live.sum(1, keepdim=True), ones, None, layer.stride, layer.padding, layer.dilation)
        offset = 0.0 if layer.bias is None else layer.bias.abs()[:, None, None]
        copies = 1  # of an input: a frame may repeat it in every row and column that it adds
        if layer.padding_mode != "zeros":
            left, right, top, bottom = layer._reversed_padding_repeated_twice
            copies = (1 + left + right) * (1 + top + bottom)
        return Sums(terms, copies * weight[:, 0].numel(), weight.abs().amax(), offset)


def _convolve(layer: nn.Conv2d, x: Tensor, weight: Tensor) -> Tensor:
    """The layer's convolution, padding included, with another weight and no bias."""
    if type(layer)._conv_forward is not nn.Conv2d._conv_forward or "_conv_forward" in vars(layer):
        # Such as one that standardises its weights first: those of |W| would be others than |those of W|.
        raise UnsupportedLayer(f"{type(layer).__name__} overrides the convolution: give it a bound rule")
    if _is_narrow(layer, x):
        return narrow_convolution(x, weight, layer.stride, cast(Pair, layer.padding))
    return cast(Tensor, layer._conv_forward(x, weight, None))


def _is_narrow(layer: nn.Conv2d, x: Tensor) -> bool:
    """Whether a compiler on a GPU is given a product of matrices instead: few inputs for each output, and no gradient
    for them, as at the first layer."""
    simple = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    simple = simple and layer.groups == 1 and set(layer.dilation) == {1}
    few = layer.weight[0].numel() <= NARROW and not x.requires_grad
    return few and simple and x.is_cuda and torch.compiler.is_compiling()


@register(nn.AvgPool2d, nn.AdaptiveAvgPool2d)
class AveragePoolRule(Affine[nn.Module]):
    """The weights are positive and there is no offset, so that |W| = W."""

    keeps_sign = True

    def apply_absolute(self, layer: nn.Module, radius: Tensor) -> Tensor:
        if isinstance(layer, nn.AvgPool2d) and (layer.divisor_override or 1) < 0:
            raise UnsupportedLayer("AvgPool2d with a negative divisor_override has no bound: make it positive")
        return self.apply(layer, radius)

    def sums(self, layer: nn.Module, live: Tensor) -> Sums:
        size = live.shape[2:].numel()
        if isinstance(layer, nn.AvgPool2d):
            size = math.prod(pair(layer.kernel_size))
        # A sum, then a division or a product with a rounded reciprocal; windows of zeros give zero.
        terms = (self.apply(layer, live) > 0).to(live.dtype) * size
        fan_out = max(size, terms.shape[2:].numel())  # an adaptive one may make several outputs of one input
        stretch = max(size, getattr(layer, "divisor_override", None) or 1)
        return Sums(terms, fan_out, live.new_ones(()), extra=2, stretch=stretch)

    def adjoint(self, layer: nn.Module, slope: Tensor, like: Tensor) -> Tensor:
        size = tile(layer)
        if size is None:
            return transpose(layer, slope, like)
        tiles = _enlarged(slope, size) / size**2
        below, behind = (side - given for side, given in zip(like.shape[2:], tiles.shape[2:], strict=True))
        return F.pad(tiles, (0, behind, 0, below)) if below or behind else tiles  # what no tile reaches


def _enlarged(slope: Tensor, size: int) -> Tensor:
    """Each entry as a square of this size."""
    if not torch.compiler.is_compiling():
        return F.interpolate(slope, scale_factor=size, mode="nearest")
    # A compiler makes an index of `interpolate`, and the gradient of an index scatters: slow on a GPU.
    rows, channels, height, width = slope.shape
    squares = slope[:, :, :, None, :, None].expand(-1, -1, -1, size, -1, size)
    return squares.reshape(rows, channels, height * size, width * size)


def tile(layer: nn.Module) -> int | None:
    """The size of an average's windows, if these are squares side by side: the transpose is then enlargement."""
    if not isinstance(layer, nn.AvgPool2d) or pair(layer.padding) != (0, 0) or layer.divisor_override is not None:
        return None
    size, across = pair(layer.kernel_size)
    return size if size == across and pair(layer.stride) == (size, size) and not layer.ceil_mode else None


@register(nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d)
class ReshapeRule(Affine[nn.Module]):
    """Layers that leave every value as it is."""

    keeps_sign = True

    def apply(self, layer: nn.Module, x: Tensor) -> Tensor:
        if isinstance(layer, nn.Dropout | nn.Dropout2d) and layer.training and layer.p > 0:
            raise UnsupportedLayer("Dropout has no bound while it is on: call model.eval() first")
        if isinstance(layer, nn.Flatten) and layer.start_dim % x.ndim == 0:
            raise UnsupportedLayer("Flatten(start_dim=0) mixes the images of a batch: use start_dim=1")
        return super().apply(layer, x)

    def apply_absolute(self, layer: nn.Module, radius: Tensor) -> Tensor:
        return self.apply(layer, radius)

    def adjoint(self, layer: nn.Module, slope: Tensor, like: Tensor) -> Tensor:
        return slope.reshape(like.shape)

    def sums(self, layer: nn.Module, live: Tensor) -> Sums:
        return EXACT
