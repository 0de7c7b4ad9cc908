"""A joint score that is more than one shift: both parts rescaled before they are multiplied (docs/fusion.md)."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.errors import BadValue
from prood.models.architectures import Spec, architecture, build
from prood.models.discriminators import Discriminator
from prood.models.joint import ProoD, confidence_logit


def product_logit(s: Tensor, g: Tensor) -> Tensor:
    """S with σ(S) = σ(s)·σ(g), in float64: the score of Eq. 3 from the classifier's own score s and g.

    For a confidence p, σ(s) = (p − 1/K)/(1 − 1/K), and Eq. 3 multiplies this by σ(g + Δ). So the joint model is a soft
    minimum of s and g + Δ. No infinity makes it NaN.
    """
    s, g = s.double(), g.double()
    both = -s.clamp(-1e300, 1e300) - g.clamp(-1e300, 1e300)  # ∞ − ∞ is no number
    return torch.minimum(-torch.logaddexp(torch.logaddexp(-s, -g), both), g)


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


def with_confidence_logit(logits: Tensor, target: Tensor) -> Tensor:
    """Logits (float64) in the same order, whose `confidence_logit` is `target`.

    To be less sure than the classifier is, its distribution is mixed with the uniform one, as in Eq. 3; to be more
    sure, with that which has its class alone.
    """
    logits, classes = logits.double(), logits.shape[1]
    own, log_p = confidence_logit(logits), F.log_softmax(logits, 1)
    top = logits.argmax(1, keepdim=True)
    log_part = (F.logsigmoid(target) - F.logsigmoid(own)).clamp(max=-1e-15)[:, None]  # less sure: of the classifier
    less = torch.logaddexp(log_p + math.log(classes) + log_part, torch.log(-torch.expm1(log_part)))
    missing = math.log1p(-1 / classes) + F.logsigmoid(-target)  # more sure: what is left for all other classes
    rest = log_p.scatter(1, top, -torch.inf)
    others = log_p + (missing - rest.logsumexp(1))[:, None]
    more = others.scatter(1, top, torch.log(-torch.expm1(missing.clamp(max=-1e-300)))[:, None])
    return torch.where((target > own)[:, None], more, less)


class Rescored(ProoD):
    """A joint model of Eq. 3 with another score than its own, one that never exceeds g + Δ (`scored`).

    Its classifier has f's classes in f's order, but says otherwise how sure it is. Eq. 4 holds for every classifier, so
    the certificate is that of the joint model.
    """

    def classified(self, logits: Tensor, in_logit: Tensor) -> Tensor:
        """Logits in the classifier's order, with which Eq. 3 has the confidence of the score; float64.

        With S the score and G = g + Δ, theirs is s′ with σ(S) = σ(s′)·σ(G), that is
        e^(−s′) = (e^(−S) − e^(−G)) / (1 + e^(−G)).
        """
        in_logit = in_logit.double()
        score = self.scored(logits, in_logit)
        gap = torch.log(-torch.expm1(score - in_logit).clamp(max=-1e-30))  # where the confidence is all that g allows
        return with_confidence_logit(logits, score - gap + F.softplus(-in_logit))

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).float()


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
