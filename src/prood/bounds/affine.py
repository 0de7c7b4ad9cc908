"""Rules for affine layers: linear, convolution, average pooling, batch norm, normalisation, reshaping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds.box import Box
from prood.bounds.layers import NegativeLinear, Normalise
from prood.bounds.registry import Affine, L, UnsupportedLayer, register, widen


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


@register(NegativeLinear)
class NegativeLinearRule(LinearRule):
    """Only lower bounds below it enter its upper bound, b − exp(h)·lower.

    Taken directly, because −exp(h)·c + exp(h)·r would leave a rounding error where both cancel: a bound that should be
    b, the value at which g saturates, must not come out a little below it.
    """

    def interval(self, layer: nn.Linear, box: Box) -> Box:
        result = super().interval(layer, box)
        return replace(result, exact_upper=widen(self.apply(layer, box.lower)))


@register(nn.Conv2d)
class Conv2dRule(Affine[nn.Conv2d]):
    """Any stride, padding (numbers, "same", "valid"), padding mode, dilation and groups."""

    def apply_absolute(self, layer: nn.Conv2d, radius: Tensor) -> Tensor:
        return _convolve(layer, radius, layer.weight.abs())

    def adjoint(self, layer: nn.Conv2d, slope: Tensor, like: Tensor) -> Tensor:
        if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
            return transpose(lambda x: _convolve(layer, x, layer.weight), slope, like)
        reach = [
            (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1
            for size, stride, pad, dilation, kernel in zip(
                slope.shape[2:], layer.stride, layer.padding, layer.dilation, layer.kernel_size, strict=True
            )
        ]
        missing = [have - got for have, got in zip(like.shape[2:], reach, strict=True)]
        return F.conv_transpose2d(
            slope,
            layer.weight,
            stride=layer.stride,
            padding=cast(tuple[int, int], layer.padding),
            output_padding=cast(tuple[int, int], tuple(missing)),
            groups=layer.groups,
            dilation=layer.dilation,
        )

    def constant(self, layer: nn.Conv2d, slope: Tensor) -> Tensor | float:
        return 0.0 if layer.bias is None else (slope.sum((2, 3)) * layer.bias).sum(1)


def _convolve(layer: nn.Conv2d, x: Tensor, weight: Tensor) -> Tensor:
    """The layer's convolution, padding included, with another weight and no bias."""
    return cast(Tensor, layer._conv_forward(x, weight, None))


@register(nn.AvgPool2d, nn.AdaptiveAvgPool2d)
class AveragePoolRule(Affine[nn.Module]):
    """The weights are positive and there is no offset, so that |W| = W."""

    def apply_absolute(self, layer: nn.Module, radius: Tensor) -> Tensor:
        if isinstance(layer, nn.AvgPool2d) and (layer.divisor_override or 1) < 0:
            raise UnsupportedLayer("AvgPool2d with a negative divisor_override has no bound: make it positive")
        return self.apply(layer, radius)

    def adjoint(self, layer: nn.Module, slope: Tensor, like: Tensor) -> Tensor:
        size = like.shape[2] // slope.shape[2]
        tiles = like.shape[2:] == (size * slope.shape[2], size * slope.shape[3])
        if isinstance(layer, nn.AvgPool2d) and tiles and _is_tiling(layer, size):
            return F.interpolate(slope, scale_factor=size, mode="nearest") / size**2
        return transpose(layer, slope, like)


def _is_tiling(layer: nn.AvgPool2d, size: int) -> bool:
    """Windows of this size side by side: the transpose is then plain enlargement."""
    square = (size, (size, size))
    return (
        layer.kernel_size in square
        and layer.stride in square
        and layer.padding in (0, (0, 0))
        and layer.divisor_override is None
    )


class ChannelwiseRule(Affine[L]):
    """x ↦ scale · x + shift with one number per channel."""

    def scale_and_shift(self, layer: L) -> tuple[Tensor, Tensor]:
        raise UnsupportedLayer(f"{type(self).__name__} does not define scale_and_shift()")

    def apply_absolute(self, layer: L, radius: Tensor) -> Tensor:
        scale, _ = self.scale_and_shift(layer)
        return radius * _per_channel(scale.abs(), radius)

    def adjoint(self, layer: L, slope: Tensor, like: Tensor) -> Tensor:
        scale, _ = self.scale_and_shift(layer)
        return slope * _per_channel(scale, slope)

    def constant(self, layer: L, slope: Tensor) -> Tensor | float:
        _, shift = self.scale_and_shift(layer)
        return (slope * _per_channel(shift, slope)).flatten(1).sum(1)


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.ndim - 2))


@register(Normalise)
class NormaliseRule(ChannelwiseRule[Normalise]):
    def scale_and_shift(self, layer: Normalise) -> tuple[Tensor, Tensor]:
        return 1 / layer.std, -layer.mean / layer.std


@register(nn.BatchNorm1d, nn.BatchNorm2d)
class BatchNormRule(ChannelwiseRule[nn.BatchNorm2d]):
    """With its statistics frozen, batch norm is one affine map for every image of the batch."""

    def apply(self, layer: nn.BatchNorm2d, x: Tensor) -> Tensor:
        self.scale_and_shift(layer)  # refuse before the forward pass moves the running statistics
        return super().apply(layer, x)

    def scale_and_shift(self, layer: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
        if layer.training or layer.running_var is None or layer.running_mean is None:
            raise UnsupportedLayer(
                "BatchNorm has no bound while it uses the statistics of the batch: call model.eval() first"
            )
        scale = (layer.running_var + layer.eps).rsqrt()
        if layer.affine:
            scale = scale * layer.weight
        shift = -layer.running_mean * scale
        return scale, shift + layer.bias if layer.affine else shift


@register(nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d)
class ReshapeRule(Affine[nn.Module]):
    """Layers that leave every value as it is."""

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
