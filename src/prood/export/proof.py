"""The certified bound as a function of tensors that can be traced: ḡ(x) over the ℓ∞ ball, in float64.

The same rules and the same error bounds as `prood.bounds.upper_bound(method="best")`; docs/export.md has the argument.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from prood.bounds import BlockedLinear, Box, NegativeLinear, Normalise, concretise, relax
from prood.bounds.concrete import finish, scalar
from prood.errors import Unsupported
from prood.export.layers import FixedNegative, Rectifier, Tiles, Windows
from prood.models import Discriminator

_HALF = 2.0**-24 * (1 + 2.0**-20)
"""What rounding to float32 may change of a number, relative to it; and room for our own roundings in float64."""

_SMALLEST = 2.0**-126
"""The smallest normal float32 number."""


class Portable(TorchFunctionMode):
    """What an export cannot express, by something that it can.

    `nextafter` becomes a step of at least as much: all that the rules do with it is to move ends outwards. Halves of a
    batch are taken by a shape, and not by the number of images in it.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nextafter:
            x, towards = args
            step = x.abs() * torch.finfo(x.dtype).eps + _SMALLEST
            return torch.where(towards > 0, x + step, x - step)
        if func is Tensor.chunk and args[1:] == (2,):
            return args[0].unflatten(0, (2, -1)).unbind(0)
        return func(*args, **(kwargs or {}))


def ball(images: Tensor, eps: Tensor) -> Box:
    """A sound box in float64 around the ball in [0, 1]^d, for every radius that eps may have been rounded from.

    It also contains what x ± eps gives in float32.
    """
    x, radius = images.double(), eps.double() * (1 + _HALF)
    low, high = x - radius, x + radius
    low, high = low - (low.abs() * _HALF + _SMALLEST), high + (high.abs() * _HALF + _SMALLEST)
    none = torch.zeros_like(x.flatten(1)[:, 0], dtype=torch.bool)
    empty = Box(x[:0], x[:0], sound=True, overflow=none)
    return empty.between(low.clamp(0, 1), high.clamp(0, 1), x[:0])


class Proof(nn.Module):
    """(images, eps) → ḡ. `network` is made of layers that `proof_layer` gives, with parameters in float64."""

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, eps: Tensor) -> Tensor:
        with Portable():
            box = ball(images, eps)
            output, pullback = relax(self.network, box)
            bound = scalar(output.upper)
            # As in `upper_bound`: the lower slopes of the image win at small radii, those of the middle at large ones.
            for slopes in (self.slopes_at(images.double().clamp(0, 1)), {}):
                bound = torch.minimum(bound, concretise(box, pullback, output.radius, slopes=slopes))
            return finish(output, bound)

    def slopes_at(self, images: Tensor) -> dict[nn.Module, Tensor]:
        """The slope of each ReLU at the image."""
        slopes: dict[nn.Module, Tensor] = {}
        for layer in self.network:
            if isinstance(layer, Rectifier):
                slopes[layer] = (images > 0).to(images.dtype)
            images = layer(images)
        return slopes


def layers_of(discriminator: Discriminator) -> list[nn.Module]:
    """Its layers in a row; refuses those that a runtime may compute otherwise than certificates cover.

    A runtime merges batch norms into convolutions, and sums of branches into their last one. Neither is covered.
    """
    found: list[nn.Module] = []
    for layer in _flat(discriminator.network):
        found.append(layer)
        plain = type(layer) in (Normalise, nn.Linear, BlockedLinear, NegativeLinear, nn.ReLU, nn.Flatten, nn.Identity)
        good = plain or (type(layer) is nn.Conv2d and _is_plain(layer)) or _tiles(layer)
        if not good or (isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1)):
            raise Unsupported(
                f"a discriminator with the layer {layer} cannot be exported with its bound: it may be made of "
                "Normalise, Conv2d (one group, zeros around), AvgPool2d (tiles), Linear, ReLU and Flatten"
            )
    return [layer for layer in found if not isinstance(layer, nn.Identity)]


def deployed_layer(layer: nn.Module) -> nn.Module:
    """What computes g in float32."""
    return FixedNegative.of(layer, torch.float32) if isinstance(layer, NegativeLinear) else layer


def proof_layer(layer: nn.Module) -> nn.Module:
    """What the proof passes boxes and planes through."""
    if isinstance(layer, nn.Conv2d):
        return Windows.of(layer)
    if isinstance(layer, nn.AvgPool2d):
        return Tiles.of(layer)
    if isinstance(layer, NegativeLinear):
        return FixedNegative.of(layer, torch.float64)
    return Rectifier() if isinstance(layer, nn.ReLU) else layer


def _flat(network: nn.Module) -> list[nn.Module]:
    if type(network) is not nn.Sequential:
        return [network]
    return [layer for child in network for layer in _flat(child)]


def _is_plain(layer: nn.Conv2d) -> bool:
    return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _tiles(layer: nn.Module) -> bool:
    """Windows side by side, without padding: a mean over axes."""
    if type(layer) is not nn.AvgPool2d:
        return False
    pairs = [(size, size) if isinstance(size, int) else tuple(size) for size in (layer.kernel_size, layer.stride)]
    plain = layer.padding in (0, (0, 0)) and layer.divisor_override is None and not layer.ceil_mode
    return pairs[0] == pairs[1] and plain
