"""Functions that rise, as numbers: the gate λ of a joint model, and the scale of a member of a committee.

Deployed, they are evaluated in float64. Between the knots k < k′ with the values c < c′ that is
c + (c′ − c)/(k′ − k)·(x − k), each operation rounded to nearest; before the first knot and behind the last one the
slope is 1. The value is then held between c and c′. The product and the sum may be fused, which leaves two results at
most.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from prood.certification.verify.exact import Undecided


@dataclass(frozen=True)
class Rising:
    """Without knots it is x itself."""

    knots: tuple[float, ...] = ()
    caps: tuple[float, ...] = ()  # the values at the knots

    what, ends = "scale", "values"

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.caps):
            raise Undecided(
                f"the {self.what} of the model has {len(self.knots)} knots, but {len(self.caps)} {self.ends}"
            )
        for name, values in (("knots", self.knots), (self.ends, self.caps)):
            if not all(map(math.isfinite, values)):
                raise Undecided(f"the {name} of the model's {self.what} are not finite")
            if not all(low < high for low, high in pairwise(values)):
                raise Undecided(f"the {name} of the model's {self.what} do not rise")

    def __call__(self, x: float) -> tuple[float, float]:
        """The lowest and the highest value at x that float64 may return."""
        knots, caps = self.knots, self.caps
        if not knots or not math.isfinite(x):
            return x, x
        piece = bisect_left(knots, x)
        start, end = max(piece - 1, 0), min(piece, len(knots) - 1)
        slope = 1.0 if start == end else (caps[end] - caps[start]) / (knots[end] - knots[start])
        away = x - knots[start]
        fused = float(Fraction(caps[start]) + Fraction(slope) * Fraction(away))
        least = caps[start] if piece > 0 else -math.inf
        most = caps[end] if piece < len(knots) else math.inf
        low, high = sorted(min(max(value, least), most) for value in (caps[start] + slope * away, fused))
        return low, high


@dataclass(frozen=True)
class Gate(Rising):
    """λ(x) ≤ x, the highest score that an image may have whose g + Δ is x: its caps do not exceed its knots."""

    what, ends = "gate", "caps"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(cap <= knot for knot, cap in zip(self.knots, self.caps, strict=True)):
            raise Undecided("a cap of the model's gate is above its knot")

    def __call__(self, x: float) -> tuple[float, float]:
        low, high = super().__call__(x)
        return min(low, x), min(high, x)
