"""The gate λ of a joint model as numbers: the highest score that an image may have whose g + Δ is x.

Deployed, λ is evaluated in float64. Between the knots k < k′ with the caps c < c′ it is c + (c′ − c)/(k′ − k)·(x − k),
each operation rounded to nearest; before the first knot and behind the last one the slope is 1. The value is then held
between c and c′, and below x. The product and the sum may be fused, which leaves two results at most.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from prood.certification.verify.exact import Undecided


@dataclass(frozen=True)
class Gate:
    """Without knots λ(x) = x."""

    knots: tuple[float, ...] = ()
    caps: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.caps):
            raise Undecided(f"the gate of the model has {len(self.knots)} knots, but {len(self.caps)} caps")
        for name, values in (("knots", self.knots), ("caps", self.caps)):
            if not all(map(math.isfinite, values)):
                raise Undecided(f"the {name} of the model's gate are not finite")
            if not all(low < high for low, high in pairwise(values)):
                raise Undecided(f"the {name} of the model's gate do not rise")
        if not all(cap <= knot for knot, cap in zip(self.knots, self.caps, strict=True)):
            raise Undecided("a cap of the model's gate is above its knot")

    def __call__(self, x: float) -> tuple[float, float]:
        """The lowest and the highest λ(x) that float64 may return."""
        knots, caps = self.knots, self.caps
        if not knots or not math.isfinite(x):
            return x, x
        piece = bisect_left(knots, x)
        start, end = max(piece - 1, 0), min(piece, len(knots) - 1)
        slope = 1.0 if start == end else (caps[end] - caps[start]) / (knots[end] - knots[start])
        away = x - knots[start]
        fused = float(Fraction(caps[start]) + Fraction(slope) * Fraction(away))
        least = caps[start] if piece > 0 else -math.inf
        most = min(x, caps[end]) if piece < len(knots) else x
        low, high = sorted(min(max(value, least), most) for value in (caps[start] + slope * away, fused))
        return low, high
