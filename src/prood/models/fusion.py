"""Joint models whose score is a fitted curve: such files stay readable, new ones are not made (docs/verdict.md)."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prood.errors import BadValue
from prood.models.architectures import Spec, architecture, build
from prood.models.discriminators import Discriminator
from prood.models.gated import Rescored
from prood.models.joint import confidence_logit, product_logit


@dataclass(frozen=True)
class Curve:
    """F(s, g) = m + S/c with σ(S) = σ( c·(s − d − m) )·σ( c·(g − m) ): a soft min(s − d, g, s − d + g − m).

    d is `offset`, c `sharpness` and m `level`. Above the level the less sure of the two decides, below it what both say
    against an image adds up; the larger c is, the sharper is this. F grows with s and g, and is at most g: for large s
    it is g itself. `Curve.shifted(Δ)` is ProoD with the shift Δ, one number for all three.
    """

    offset: float
    sharpness: float
    level: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in astuple(self)) or self.sharpness <= 0:
            raise BadValue(f"a fusion's curve has finite numbers and a positive sharpness: not {self}")

    @classmethod
    def shifted(cls, shift: float) -> Curve:
        """That of the joint model with this Δ: its score, less Δ."""
        return cls(offset=shift, sharpness=1.0, level=-shift)

    def __call__(self, s: Tensor, g: Tensor) -> Tensor:
        """The score, in float64, never above g: the last step holds this against rounding."""
        s, g, c = s.double(), g.double(), self.sharpness
        both = product_logit(c * (s - self.offset - self.level), c * (g - self.level))
        return torch.minimum(self.level + both / c, g)


class Fusion(Rescored):
    """The joint model with the score F(s, g) + Δ, where s is the classifier's own score and F a `Curve`.

    It is a joint model of Eq. 3 with another classifier, which has f's classes in f's order but says otherwise how sure
    it is. Eq. 4 holds for every classifier, so the certificate is ḡ + Δ; it takes nothing of the curve but F ≤ g.
    Here Δ moves all scores alike: it sets how sure the model sounds, and no longer how well it detects.
    """

    numbers: Tensor

    def __init__(self, classifier: nn.Module, discriminator: Discriminator, curve: Curve, shift: float = 0.0) -> None:
        super().__init__(classifier, discriminator, shift)
        self.register_buffer("numbers", torch.tensor(astuple(curve), dtype=torch.float32))

    @property
    def architecture(self) -> dict[str, Any]:
        return super().architecture | {"name": "fusion"}

    @property
    def curve(self) -> Curve:
        """That of the constructor, its numbers rounded to float32."""
        return Curve(*self.numbers.tolist())

    def scored(self, logits: Tensor, in_logit: Tensor) -> Tensor:
        """The fused score, which never exceeds g + Δ; float64."""
        in_logit, shift = in_logit.double(), self.shift.double()
        return torch.minimum(self.curve(confidence_logit(logits), in_logit - shift) + shift, in_logit)


@architecture("fusion")
def _fusion(classifier: Spec, discriminator: Spec) -> nn.Module:
    f, g = build(classifier), build(discriminator)
    return Fusion(f, g, Curve.shifted(0.0))  # type: ignore[arg-type]  # a g of another kind is refused there
