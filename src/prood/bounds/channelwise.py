"""Rules for layers that scale and shift each channel: normalisation, batch norm."""

import torch
from torch import Tensor, nn

from prood.bounds.layers import Normalise
from prood.bounds.registry import Affine, L, UnsupportedLayer, register
from prood.bounds.rounding import Sums

_CHANNELWISE = 8
"""Roundings in a normalisation, however its formula is arranged, with a root and a division among them."""


class ChannelwiseRule(Affine[L]):
    """x ↦ scale · x + shift with one number per channel."""

    def scale_and_shift(self, layer: L) -> tuple[Tensor, Tensor]:
        raise UnsupportedLayer(f"{type(self).__name__} does not define scale_and_shift()")

    def apply_absolute(self, layer: L, radius: Tensor) -> Tensor:
        return radius * _per_channel(self.scale_and_shift(layer)[0].abs(), radius)

    def adjoint(self, layer: L, slope: Tensor, like: Tensor) -> Tensor:
        return slope * _per_channel(self.scale_and_shift(layer)[0], slope)

    def constant(self, layer: L, slope: Tensor) -> Tensor | float:
        return (slope * _per_channel(self.scale_and_shift(layer)[1], slope)).flatten(1).sum(1)

    def sums(self, layer: L, live: Tensor) -> Sums:
        offset = _per_channel(self.largest_shift(layer), live)
        # The shift is the result of roundings as well, unlike a bias. Each term pays for max(P, N), at least half of
        # it: so there are two for each of those, whatever the input.
        return Sums(1 + 2 * _CHANNELWISE, 1, self.largest(layer), offset, extra=_CHANNELWISE)

    def largest(self, layer: L) -> Tensor:
        """The largest of the numbers that the formula works with."""
        return self.scale_and_shift(layer)[0].abs().amax()

    def largest_shift(self, layer: L) -> Tensor:
        """The sum of the absolute values of the numbers that the shift consists of, with their scale."""
        raise UnsupportedLayer(f"{type(self).__name__} does not define largest_shift()")


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.ndim - 2))


@register(Normalise)
class NormaliseRule(ChannelwiseRule[Normalise]):
    def scale_and_shift(self, layer: Normalise) -> tuple[Tensor, Tensor]:
        return 1 / layer.std, -layer.mean / layer.std

    def largest_shift(self, layer: Normalise) -> Tensor:
        return layer.mean.abs() / layer.std

    def largest(self, layer: Normalise) -> Tensor:
        return torch.maximum(super().largest(layer), layer.mean.abs().amax())


@register(nn.BatchNorm1d, nn.BatchNorm2d)
class BatchNormRule(ChannelwiseRule[nn.BatchNorm2d]):
    """With its statistics frozen, batch norm is one affine map for every image of the batch."""

    def apply(self, layer: nn.BatchNorm2d, x: Tensor) -> Tensor:
        self.scale_and_shift(layer)  # refuse before the forward pass moves the running statistics
        return super().apply(layer, x)

    def scale_and_shift(self, layer: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
        if layer.training or layer.running_var is None or layer.running_mean is None:
            raise UnsupportedLayer(
                "BatchNorm has no bound while it takes the batch's statistics: call model.eval() first"
            )
        scale = (layer.running_var + layer.eps).rsqrt()
        if layer.affine:
            scale = scale * layer.weight
        shift = -layer.running_mean * scale
        return scale, shift + layer.bias if layer.affine else shift

    def sums(self, layer: nn.BatchNorm2d, live: Tensor) -> Sums:
        # What float32 keeps with few digits, or for which a processor may take 0, must not be divided by or enlarged.
        tiny = torch.finfo(torch.float32).tiny
        assert layer.running_var is not None
        small = 0 < layer.eps < tiny or bool((layer.running_var + layer.eps < tiny).any())
        if layer.affine:
            small = small or bool(((layer.weight != 0) & (layer.weight.abs() < tiny)).any())
        if small:
            raise UnsupportedLayer(
                "BatchNorm has no sound bound with a variance, eps or weight below 1.2e-38: make it 0"
            )
        return super().sums(layer, live)

    def largest_shift(self, layer: nn.BatchNorm2d) -> Tensor:
        scale, _ = self.scale_and_shift(layer)
        assert layer.running_mean is not None
        shift = (layer.running_mean * scale).abs()
        return shift + layer.bias.abs() if layer.affine else shift

    def largest(self, layer: nn.BatchNorm2d) -> Tensor:
        statistics = [one.abs().amax() for one in (layer.running_mean, layer.running_var) if one is not None]
        return torch.stack([super().largest(layer), *statistics]).amax()
