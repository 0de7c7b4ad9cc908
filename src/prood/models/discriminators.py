"""The certified discriminator g: a small convolutional network that tells in- from out-distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from prood import bounds
from prood.bounds import BlockedLinear, NegativeLinear, Normalise
from prood.bounds.registry import Pullback, Slopes
from prood.errors import BadValue, UnknownName, Unsupported
from prood.models.architectures import architecture, spec_of

Numbers = Sequence[float] | None  # one for each channel
IMAGE = (3, 32, 32)
SIZES = {
    # The paper's two (its architecture table): S for 32×32, SR for 224×224.
    "S": "128 256s2 256 p2 fc128",
    "SR": "128 p2 256s2 p2 256 p2 fc128",
    # The others of its size ablation; XL_b and C1 are the same network.
    "XS": "64 128s2 128 p2 fc128",
    "SR2": "128 256s2 p2 256 p2 fc128",
    "XL_b": "128 128 256s2 256 256 fc512",
    "C1": "128 128 256s2 256 256 fc512",
    "C2": "256 256 512s2 512 512 fc1024",
    "C3": "256 512s2 512 fc512",
    "C3s": "256 512s2 512 p2 fc128",
    "C4": "512 1024s2 512 fc128",
    # For 28×28 digits.
    "digits": "16s2 fc64",
    "digits-XS": "4s2 fc16",
    "digits-S": "8s2 fc32",
    "digits-L": "32s2 fc64",
    "digits-deep": "16s2 32s2 fc64",
}
"""`128` is a 3×3 convolution with 128 channels and a ReLU, `s2` its stride, `p2` AvgPool2d(2), `fc128` a linear layer
with a ReLU. All of them end in a `NegativeLinear`."""


class Discriminator(nn.Module):
    """g = −exp(h)·relu(body(x)) + b, the logit of p(in-distribution | x); one number per image.

    `network` is a Sequential of layers with bound rules that ends in a ReLU and a `NegativeLinear`. Because the last
    weights are negative and the values they multiply are not, g ≤ b everywhere, and g → −∞ far away from all data
    (Theorem 1 of the paper). Any other last activation would void that, and is refused.

    The theorem needs a last hidden unit that keeps growing, and there are directions without one. A `guard` c > 0 takes
    c·‖x − [0, 1]^d‖₁ from g: nothing on images, where every bit of g and every certificate stays what it is, and
    g ≤ b − c·‖x − [0, 1]^d‖₁ everywhere else, so that g → −∞ in every direction (docs/asymptotics.md).
    """

    def __init__(self, network: nn.Sequential, guard: float = 0.0) -> None:
        super().__init__()
        if not 0 <= guard <= torch.finfo(torch.float32).max:  # in which it is multiplied
            raise BadValue(f"the weight of the guard is a finite number that is not negative, not {guard}")
        if type(network).forward is not nn.Sequential.forward:
            raise Unsupported(f"a discriminator is a plain nn.Sequential, not a {type(network).__name__}")
        if len(network) < 3 or type(network[-1]) is not NegativeLinear or network[-1].out_features != 1:
            raise Unsupported("a discriminator must end in NegativeLinear(n, 1): the asymptotic guarantee needs it")
        if type(network[-2]) is not nn.ReLU:
            raise Unsupported(f"a discriminator's last activation must be nn.ReLU, not {type(network[-2]).__name__}")
        self.body, self.tail = nn.Sequential(*list(network)[:-2]), nn.Sequential(*list(network)[-2:])
        self.guard = float(guard)  # no tensor: the weights, their fingerprint and files that have none stay the same

    def guarded(self, weight: float = 1.0) -> Discriminator:
        """The same discriminator (it shares the weights) with another guard; 0 takes it off."""
        made = Discriminator(nn.Sequential(*self.body, *self.tail), guard=weight).train(self.training)
        if hasattr(self, "architecture"):
            spec: dict[str, Any] = {key: value for key, value in spec_of(self).items() if key != "guard"}
            made.architecture = spec | ({"guard": made.guard} if made.guard else {})  # type: ignore[assignment]
        return made

    def __repr__(self) -> str:
        """Its description and not its layers, which `print(g.network)` shows."""
        spec = spec_of(self) if hasattr(self, "architecture") else {}
        named = [f"{key}={value!r}" for key, value in spec.items() if key in ("size", "image", "guard")]
        return (
            f"{type(self).__name__}({', '.join([*named, f'{sum(p.numel() for p in self.parameters()):,} parameters'])})"
        )

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height and width of the images that it takes, as its description says."""
        if not hasattr(self, "architecture"):
            raise BadValue("the discriminator does not say what images it takes: give image=(channels, height, width)")
        channels, height, width = spec_of(self).get("image", IMAGE)
        return int(channels), int(height), int(width)

    @property
    def last(self) -> NegativeLinear:
        layer = self.tail[1]
        assert isinstance(layer, NegativeLinear)
        return layer

    @property
    def network(self) -> nn.Sequential:
        return nn.Sequential(self.body, self.tail)

    @property
    def ceiling(self) -> float:
        """The last bias: g(x) ≤ ceiling for every x whatsoever."""
        return self.last.bias.item()

    def forward(self, images: Tensor) -> Tensor:
        logit: Tensor = self.tail(self.body(images)).squeeze(1)
        return logit - self.guard * beyond_images(images) if self.guard else logit

    def covered(self, images: Tensor) -> Tensor:
        """g(x) in arithmetic that certificates cover, whatever the settings for GPUs are."""
        with bounds.strict(images.device):
            logit: Tensor = self(images)
        return logit

    def upper_bound(
        self,
        images: Tensor,
        eps: float | Tensor,
        *,
        threshold: float | Tensor | None = None,
        **options: Unpack[bounds.Options],
    ) -> Tensor:
        """ḡ(x) ≥ g(u) for every u in [0, 1]^d with ‖u − x‖ ≤ eps; see `prood.bounds.upper_bound`."""
        return bounds.upper_bound(self, images, eps, threshold=threshold, **options)


def beyond_images(images: Tensor) -> Tensor:
    """‖x − [0, 1]^d‖₁ = Σ relu(−x) + relu(x − 1), one number per image; exactly 0 for pixels in [0, 1]."""
    return ((-images).relu() + (images - 1).relu()).flatten(1).sum(1)


@bounds.register(Discriminator)
class DiscriminatorRule(bounds.Rule[Discriminator]):
    """The bounds of its network. A rule, so that hooks and a subclass's own forward are refused here as well.

    A guard subtracts what is not negative, and 0 in [0, 1]^d: upper bounds hold everywhere, lower ones for images.
    """

    def interval(self, layer: Discriminator, box: bounds.Box) -> bounds.Box:
        return bounds.interval(layer.network, box)

    def relax(self, layer: Discriminator, box: bounds.Box, slopes: Slopes) -> tuple[bounds.Box, Pullback]:
        return bounds.relax(layer.network, box, slopes)


@architecture("discriminator")
def discriminator(
    size: str = "S", *, image: Sequence[int] = IMAGE, mean: Numbers = None, std: Numbers = None, guard: float = 0.0
) -> Discriminator:
    """A discriminator of a named size (see `SIZES`) for images of shape (channels, height, width)."""
    if len(image) != 3 or not all(isinstance(side, int) and 0 < side < 2**20 for side in image):
        raise BadValue(f"an image has the shape (channels, height, width), not {tuple(image)!s:.80}")
    layers, features = body("discriminator", SIZES, size, image, mean, std)
    return Discriminator(nn.Sequential(*layers, NegativeLinear(features)), guard)


def body(
    kind: str, sizes: Mapping[str, str], size: str, image: Sequence[int], mean: Numbers, std: Numbers
) -> tuple[list[nn.Module], int]:
    """Layers with bound rules, as the words of the size say (see `SIZES`), and how many values come out."""
    if size not in sizes:
        raise UnknownName(f"unknown {kind} size {size!r}: choose one of {', '.join(sizes)}")
    channels = image[0]
    layers: list[nn.Module] = [Normalise(mean or [0.5] * channels, std or [0.25] * channels)]
    shape = list(image)
    for word in sizes[size].split():
        if word == "p2":
            layers.append(nn.AvgPool2d(2))
            shape[1:] = [side // 2 for side in shape[1:]]
        elif word.startswith("fc"):
            layers += [nn.Flatten()] if len(shape) > 1 else []
            layers += [BlockedLinear(math.prod(shape), int(word[2:])), nn.ReLU()]
            shape = [int(word[2:])]
        else:
            width, _, stride = word.partition("s")
            layers += [nn.Conv2d(shape[0], int(width), 3, stride=int(stride or 1), padding=1), nn.ReLU()]
            shape = [int(width), *(-(-side // int(stride or 1)) for side in shape[1:])]
        if not math.prod(shape):
            raise BadValue(f"images of {image[1]}×{image[2]} are too small for a {kind} of size {size!r}")
    return layers, math.prod(shape)
