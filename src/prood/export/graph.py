"""The joint model and its certified bound as one module that can be traced: from images and eps to the file's outputs.

The bound is ḡ(x) over the ℓ∞ ball, in float64, by the same rules and the same error bounds as
`prood.bounds.upper_bound(method="best")`; docs/export.md has the argument.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from prood.bounds import BlockedLinear, Box, NegativeLinear, Normalise, concretise, relax
from prood.bounds.concrete import finish, scalar
from prood.bounds.rounding import SMALLEST
from prood.errors import Unsupported
from prood.export.gating import Gating, Least, LeastBound, Scaling
from prood.export.layers import FixedNegative, Rectifier, twin
from prood.export.portable import Portable, sigmoid
from prood.models import Committee, Discriminator, Gated, ProoD
from prood.models.confidence import confidence_bound
from prood.models.discriminators import beyond_images

INPUTS = ("images", "eps")
OUTPUTS = ("probabilities", "p_in", "confidence", "upper_bound")

ROOM = 2.0**-40
"""What exponentials of the runtime, and the few operations around them, may be off, relative to their values."""

_HALF = 2.0**-24 * (1 + 2.0**-20)
"""What rounding to float32 may change of a number, relative to it; and room for our own roundings in float64."""


def ball(images: Tensor, eps: Tensor) -> Box:
    """A sound box in float64 around the ball in [0, 1]^d, for every radius that eps may have been rounded from.

    It also contains what x ± eps gives in float32.
    """
    x, radius = images.double(), eps.double() * (1 + _HALF)
    low, high = x - radius, x + radius
    low, high = low - (low.abs() * _HALF + SMALLEST), high + (high.abs() * _HALF + SMALLEST)
    none = torch.zeros_like(x.flatten(1)[:, 0], dtype=torch.bool)
    empty = Box(x[:0], x[:0], sound=True, overflow=none)
    return empty.between(low.clamp(0, 1), high.clamp(0, 1), x[:0])


class Proof(nn.Module):
    """(images, eps) → ḡ. `network` is made of layers that `twin` gives, with parameters in float64."""

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


class Deployed(nn.Module):
    """Images → g in float64: an addition in float32 could be merged into the network's last sum."""

    def __init__(self, discriminator: Discriminator) -> None:
        super().__init__()
        layers = layers_of(discriminator)
        self.network = nn.Sequential(
            *(FixedNegative.of(one, torch.float32) if isinstance(one, NegativeLinear) else one for one in layers)
        )
        self.far_penalty = discriminator.far_penalty

    def forward(self, images: Tensor) -> Tensor:
        g: Tensor = self.network(images).flatten().double()
        if self.far_penalty:  # it is 0 on images, which the proof is about
            g = g - self.far_penalty * beyond_images(images.double())
        return g


class Graph(nn.Module):
    """Images (N, C, H, W), the classifier's logits (N, K) and eps → the outputs, one row for each image."""

    shift: Tensor

    def __init__(self, model: ProoD) -> None:
        super().__init__()
        g = model.discriminator
        if isinstance(g, Committee):
            members, scales = zip(*((one, Scaling(scale.knots, scale.values)) for one, scale in g.pairs()), strict=True)
            self.discriminator: nn.Module = Least([Deployed(one) for one in members], scales)
            self.proof: nn.Module = LeastBound([_proof(one) for one in members], scales)
        else:
            self.discriminator, self.proof = Deployed(g), _proof(g)
        self.register_buffer("shift", model.shift.detach().double())
        self.gate = Gating(model) if isinstance(model, Gated) and len(model.knots) else None

    def forward(self, images: Tensor, logits: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        logits = logits.double()
        g = self.discriminator(images) + self.shift
        inside, outside = sigmoid(g)[:, None], sigmoid(-g)[:, None]
        classes, own = logits.shape[1], torch.softmax(logits, 1)
        exact = own * inside + outside * (1 / classes)
        confidence = exact.amax(1).clamp(max=1)
        bound = self.in_logit_bound(images, eps)
        if self.gate is not None:
            exact, confidence = self.gate.limit(exact, confidence, g)
            bound = self.gate.bound(bound)
        upper_bound = confidence_bound(bound, classes, sigmoid, ROOM)
        proven = ((images >= 0) & (images <= 1)).flatten(1).all(1) & (eps >= 0)  # false for NaN
        upper_bound = torch.where(proven, upper_bound, 1.0)
        return in_order_of(logits, exact), inside[:, 0], confidence, upper_bound

    def in_logit_bound(self, images: Tensor, eps: Tensor) -> Tensor:
        """ḡ(x) + Δ, whether the sum is made in float64, as here, or in float32, as in torch."""
        # The file holds each weight once, in float32; their float64 twins are casts.
        wide = {name: value.double() for name, value in (*self.proof.named_parameters(), *self.proof.named_buffers())}
        bound: Tensor = functional_call(self.proof, wide, (images, eps)) + self.shift
        bound = torch.maximum(bound, bound.float().double())
        return torch.where((bound < 0) & (bound > -SMALLEST), 0.0, bound)  # some processors take subnormals for zero


def in_order_of(logits: Tensor, exact: Tensor) -> Tensor:
    """The probabilities in float32, with the classifier's class strictly on top.

    Far from the data they all round to 1/K. Two units in the last place then tell which class it is.
    """
    values = exact.float()
    top = torch.arange(logits.shape[1], device=logits.device) == logits.argmax(1, keepdim=True)
    others = torch.where(top, 0.0, values).amax(1, keepdim=True)
    return torch.where(top, torch.maximum(values, others * (1 + 2.0**-22)), values)


def _proof(discriminator: Discriminator) -> Proof:
    return Proof(nn.Sequential(*map(twin, layers_of(discriminator))))


def layers_of(discriminator: Discriminator) -> list[nn.Module]:
    """Its layers in a row; refuses those that a runtime may compute otherwise than certificates cover.

    A runtime merges batch norms into convolutions, and sums of branches into their last one. Neither is covered.
    """
    layers = _flat(discriminator.network)
    for layer in layers:
        if not _is_covered(layer):
            raise Unsupported(
                f"a discriminator with the layer {layer} cannot be exported with its bound: it may be made of "
                "Normalise, Conv2d (one group, zeros around), AvgPool2d (tiles), Linear, ReLU and Flatten"
            )
    return [layer for layer in layers if not isinstance(layer, nn.Identity)]


def _flat(network: nn.Module) -> list[nn.Module]:
    if type(network) is not nn.Sequential:
        return [network]
    return [layer for child in network for layer in _flat(child)]


def _is_covered(layer: nn.Module) -> bool:
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.Conv2d:
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if type(layer) is nn.AvgPool2d:  # windows side by side, without padding: a mean over axes
        sizes = (layer.kernel_size, layer.stride)
        kernel, stride = ((size, size) if isinstance(size, int) else tuple(size) for size in sizes)
        plain = layer.padding in (0, (0, 0)) and layer.divisor_override is None and not layer.ceil_mode
        return plain and kernel == stride
    return type(layer) in (Normalise, nn.Linear, BlockedLinear, NegativeLinear, nn.ReLU, nn.Identity)
