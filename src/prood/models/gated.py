"""The joint model with a second gate: g alone may reject an image, too (docs/verdict.md)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.errors import BadValue
from prood.models.architectures import Spec, architecture, build
from prood.models.discriminators import Discriminator
from prood.models.joint import ProoD, confidence_logit
from prood.models.rising import Rising, rising


@dataclass(frozen=True)
class Gate:
    """λ(x) ≤ x: the highest score that an image may have whose g + Δ is x.

    A threshold t on min(S, λ(g + Δ)) is two: S ≥ t for the joint score S, and g + Δ ≥ λ⁻¹(t). `knots` are values x
    and `caps` what λ is there; between them λ is linear, beyond them it is parallel to x. So it grows strictly, and
    tells apart whatever g tells apart. Without knots λ(x) = x, and g rejects nothing that S ≤ g + Δ does not.
    """

    knots: tuple[float, ...] = ()
    caps: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _ = self.rising  # refuses what does not rise
        if any(cap > knot for knot, cap in zip(self.knots, self.caps, strict=True)):
            raise BadValue(f"a gate's cap must not exceed its knot: not {self.caps} at {self.knots}")

    @property
    def rising(self) -> Rising:
        return Rising(self.knots, self.caps)

    def __call__(self, x: Tensor) -> Tensor:
        """λ(x) in float64."""
        return torch.minimum(self.rising(x), x.double())

    def inverse(self, score: float) -> float:
        """The x with λ(x) = `score`, up to rounding."""
        return self.rising.inverse.at(score)


def limited(x: Tensor, knots: Tensor, caps: Tensor) -> Tensor:
    """λ(x) in float64. It does not fall anywhere, rounding included: what bounds x gives a bound of λ(x)."""
    return torch.minimum(rising(x, knots, caps), x.double())


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
    the joint model's certificate holds.
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


class Gated(Rescored):
    """The joint model whose score is min(S, λ(g + Δ)), with S its own and λ a `Gate`.

    Its confidence is the joint model's, capped by λ(g + Δ); accuracy, classes and the
    order of the classes are the classifier's. As S ≤ g + Δ and λ does not fall, λ(ḡ + Δ) bounds the score over a ball:
    Eq. 4 with λ(ḡ + Δ) in the place of ḡ + Δ. It uses nothing of the classifier.
    """

    knots: Tensor
    caps: Tensor

    def __init__(
        self, classifier: nn.Module, discriminator: Discriminator, gate: Gate | None = None, shift: float = 0.0
    ) -> None:
        super().__init__(classifier, discriminator, shift)
        gate = gate or Gate()
        self.register_buffer("knots", torch.tensor(gate.knots, dtype=torch.float32))
        self.register_buffer("caps", torch.tensor(gate.caps, dtype=torch.float32))

    @property
    def architecture(self) -> dict[str, Any]:
        return super().architecture | {"name": "gated", "knots": len(self.knots)}

    @property
    def gate(self) -> Gate:
        """That of the constructor, its numbers rounded to float32."""
        return Gate(tuple(self.knots.tolist()), tuple(self.caps.tolist()))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        keys = super().load_state_dict(state_dict, strict, assign)
        _ = self.gate  # refuses what is not one
        return keys

    def capped(self, in_logit: Tensor) -> Tensor:
        """λ(g + Δ), float64."""
        return limited(in_logit, self.knots, self.caps)

    def scored(self, logits: Tensor, in_logit: Tensor) -> Tensor:
        """min(S, λ(g + Δ)), float64."""
        return torch.minimum(confidence_logit(logits, in_logit), self.capped(in_logit))

    def shifted(self, bound: Tensor) -> Tensor:
        """λ(ḡ + Δ): the bound of the score."""
        return self.capped(super().shifted(bound))

    def g_at(self, score: float) -> float:
        return super().g_at(self.gate.inverse(score))


@architecture("gated")
def _gated(classifier: Spec, discriminator: Spec, knots: int = 0) -> nn.Module:
    count = tuple(float(number) for number in range(knots))  # in their place come the file's
    return Gated(build(classifier), build(discriminator), Gate(count, count))  # type: ignore[arg-type]  # refused there
