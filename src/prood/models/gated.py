"""The joint model with a second gate: g alone may reject an image, too (docs/verdict.md)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.errors import BadValue
from prood.models.architectures import Spec, architecture, build
from prood.models.discriminators import Discriminator
from prood.models.fusion import Rescored
from prood.models.joint import confidence_logit


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
        both = (self.knots, self.caps)
        if len(self.knots) != len(self.caps) or not all(math.isfinite(value) for values in both for value in values):
            raise BadValue(f"a gate has as many caps as knots, all of them finite: not {self.knots} and {self.caps}")
        if any(low >= high for values in both for low, high in pairwise(values)):
            raise BadValue(f"knots and caps of a gate must rise: not {self.knots} and {self.caps}")
        if any(cap > knot for knot, cap in zip(self.knots, self.caps, strict=True)):
            raise BadValue(f"a gate's cap must not exceed its knot: not {self.caps} at {self.knots}")

    def __call__(self, x: Tensor) -> Tensor:
        """λ(x) in float64."""
        knots, caps = (torch.tensor(values, dtype=torch.float64, device=x.device) for values in (self.knots, self.caps))
        return limited(x.contiguous(), knots, caps)

    def inverse(self, score: float) -> float:
        """The x with λ(x) = `score`, up to rounding."""
        knots, caps = self.knots, self.caps
        if not knots or not math.isfinite(score):
            return score
        piece = sum(cap < score for cap in caps)
        if piece in (0, len(knots)):
            place = min(piece, len(knots) - 1)
            return knots[place] + (score - caps[place])
        part = (score - caps[piece - 1]) / (caps[piece] - caps[piece - 1])
        return knots[piece - 1] + part * (knots[piece] - knots[piece - 1])


def limited(x: Tensor, knots: Tensor, caps: Tensor) -> Tensor:
    """λ(x) in float64. It does not fall anywhere, rounding included: what bounds x gives a bound of λ(x).

    On each piece a difference, a product with a positive slope and a sum follow one another, which rounding keeps in
    order; at its ends a piece is clamped to the caps there.
    """
    x, knots, caps = x.double(), knots.double(), caps.double()
    if not len(knots):
        return x
    slopes = F.pad(caps.diff() / knots.diff(), (1, 1), value=1.0)
    piece = torch.bucketize(x, knots)  # knots below x
    start, end = (piece - 1).clamp(min=0), piece.clamp(max=len(knots) - 1)
    value = caps[start] + slopes[piece] * (x - knots[start])
    value = torch.where(piece > 0, value.maximum(caps[start]), value)
    value = torch.where(piece < len(knots), value.minimum(caps[end]), value)
    return value.minimum(x)


class Gated(Rescored):
    """The joint model whose score is min(S, λ(g + Δ)), with S its own and λ a `Gate`.

    Its confidence is that of the joint model, or what λ(g + Δ) allows where that is less; accuracy, classes and the
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
