"""The certified discriminator g: a small convolutional network that tells in- from out-distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from prood import bounds
from prood.bounds import NegativeLinear, Normalise
from prood.bounds.registry import Pullback, Slopes
from prood.errors import BadValue, Unsupported
from prood.models.architectures import architecture, spec_of
from prood.models.sizes import SIZES, Numbers, averaged, layers_of

IMAGE = (3, 32, 32)


class Discriminator(nn.Module):
    """g = −exp(h)·relu(body(x)) + b, the logit of p(in-distribution | x); one number per image.

    `network` is a Sequential of layers with bound rules that ends in a ReLU and a `NegativeLinear`. Because the last
    weights are negative and the values they multiply are not, g ≤ b everywhere, and g → −∞ far away from all data
    (Theorem 1 of the paper). Any other last activation would void that, and is refused.

    The theorem needs a last hidden unit that keeps growing, and there are directions without one. A `far_penalty` c > 0
    takes c·‖x − [0, 1]^d‖₁ from g: nothing on images, where every bit of g and every certificate stays what it is, and
    g ≤ b − c·‖x − [0, 1]^d‖₁ everywhere else, so that g → −∞ in every direction (docs/asymptotics.md).
    """

    def __init__(self, network: nn.Sequential, far_penalty: float = 0.0) -> None:
        super().__init__()
        if not 0 <= far_penalty <= torch.finfo(torch.float32).max:  # in which it is multiplied
            raise BadValue(f"far_penalty must be a finite number that is not negative, not {far_penalty}")
        if type(network).forward is not nn.Sequential.forward:
            raise Unsupported(f"a discriminator is a plain nn.Sequential, not a {type(network).__name__}")
        if len(network) < 3 or type(network[-1]) is not NegativeLinear or network[-1].out_features != 1:
            raise Unsupported("a discriminator must end in NegativeLinear(n, 1): the asymptotic guarantee needs it")
        if type(network[-2]) is not nn.ReLU:
            raise Unsupported(f"a discriminator's last activation must be nn.ReLU, not {type(network[-2]).__name__}")
        self.body, self.tail = nn.Sequential(*list(network)[:-2]), nn.Sequential(*list(network)[-2:])
        self.far_penalty = float(far_penalty)  # not a tensor: neither the weights nor their fingerprint depend on it

    def with_far_penalty(self, weight: float = 1.0) -> Discriminator:
        """The same discriminator (it shares the weights) with another far penalty; 0 removes it."""
        made = Discriminator(nn.Sequential(*self.body, *self.tail), far_penalty=weight).train(self.training)
        if hasattr(self, "architecture"):
            spec = {key: value for key, value in spec_of(self).items() if key not in ("guard", "far_penalty")}
            own = {"far_penalty": made.far_penalty} if made.far_penalty else {}
            made.architecture = spec | own  # type: ignore[assignment]
        return made

    guarded = with_far_penalty  # its former name

    def enlarged(self, factor: int) -> Discriminator:
        """The same discriminator (it shares the weights) for images of `factor` times the height and width.

        It averages `factor`×`factor` pixels and goes on as before. All that is said of it is about the large image: an
        ℓ∞ ball of radius ε is averaged into one of radius ε, an ℓ2 ball into one of ε/factor, an ℓ1 ball into one of
        ε/factor². The far penalty counts the large image's pixels.
        """
        if not isinstance(factor, int) or factor < 1:
            raise BadValue(f"a discriminator is enlarged by a whole factor of 1 or more, not {factor!r}")
        if factor == 1:
            return self
        layers = list(self.body)
        place = 1 if layers and type(layers[0]) is Normalise else 0
        layers[place:place] = [nn.AvgPool2d(factor)]
        made = Discriminator(nn.Sequential(*layers, *self.tail), far_penalty=self.far_penalty).train(self.training)
        spec: dict[str, Any] = getattr(self, "architecture", {})
        if spec.get("name") == "discriminator":  # of another architecture, nobody could build the enlarged one again
            channels, height, width = self.image
            image = [channels, factor * height, factor * width]
            size = averaged(spec.get("size", "S"), factor)
            made.architecture = spec | {"size": size, "image": image}  # type: ignore[assignment]
        return made

    def __repr__(self) -> str:
        """Its description and not its layers, which `print(g.network)` shows."""
        spec = spec_of(self) if hasattr(self, "architecture") else {}
        named = [f"{key}={value!r}" for key, value in spec.items() if key in ("size", "image", "guard", "far_penalty")]
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
        return logit - self.far_penalty * beyond_images(images) if self.far_penalty else logit

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

    The far penalty is not negative, and 0 in [0, 1]^d: upper bounds hold everywhere, lower ones for images.
    """

    def interval(self, layer: Discriminator, box: bounds.Box) -> bounds.Box:
        return bounds.interval(layer.network, box)

    def relax(self, layer: Discriminator, box: bounds.Box, slopes: Slopes) -> tuple[bounds.Box, Pullback]:
        return bounds.relax(layer.network, box, slopes)


@architecture("discriminator")
def discriminator(
    size: str = "S",
    *,
    image: Sequence[int] = IMAGE,
    mean: Numbers = None,
    std: Numbers = None,
    far_penalty: float = 0.0,
    guard: float | None = None,
) -> Discriminator:
    """A discriminator for images of shape (channels, height, width).

    `size` is a name of `prood.models.SIZES`, its words (`"p4 32s2 64s2 64 fc128"`), or averages in front of a name
    (`"p4 photo-M"`). `guard` is the former name of `far_penalty`.
    """
    if len(image) != 3 or not all(isinstance(side, int) and 0 < side < 2**20 for side in image):
        raise BadValue(f"an image has the shape (channels, height, width), not {tuple(image)!s:.80}")
    layers, features = layers_of("discriminator", SIZES, size, image, mean, std)
    return Discriminator(nn.Sequential(*layers, NegativeLinear(features)), far_penalty if guard is None else guard)
