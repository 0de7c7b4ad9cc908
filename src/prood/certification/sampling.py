"""What a random sample of certificates says about all of them.

n of N certificates are drawn without replacement, every set of n with the same chance, and x of the n are not
confirmed. If K of all N could not be confirmed, x is hypergeometric. For x = 0

    P(x = 0) = C(N − K, n)/C(N, n) = Πᵢ (1 − K/(N − i)) ≤ (1 − K/N)ⁿ,

so with the level c (0.99), K/N ≤ 1 − (1 − c)^(1/n) but for a chance of 1 − c over the draw. In general the limit is
the limit of Clopper and Pearson (1934), the p at which P(Binomial(n, p) ≤ x) = 1 − c. Below the mean, the tail of the
hypergeometric distribution does not exceed the binomial one's (Uhlmann 1966), so it holds without replacement
as well. A certificate that is wrong is never confirmed: the limit covers all that are wrong.

The draw must not be known to whoever made the files: a seed is fresh unless it is given.
"""

import math
import random
import secrets
from dataclasses import dataclass, field

from prood.errors import BadValue


@dataclass(frozen=True)
class Sample:
    """How many certificates to draw; without a size, as many as show `at_most` if all of them are confirmed."""

    size: int | None = None
    at_most: float | None = None
    level: float = 0.99
    seed: int = field(default_factory=lambda: secrets.randbits(48))

    def __post_init__(self) -> None:
        if (self.size is None) == (self.at_most is None):
            raise BadValue("--sample and --at-most exclude each other: give one of them")
        for name, value in (("at-most", self.at_most), ("level", self.level)):
            if value is not None and not 0 < value < 1:
                raise BadValue(f"{name} is a share between 0 and 1, 0.001 for 0.1%, not {value}")

    @property
    def wanted(self) -> int:
        """The least n with (1 − at_most)ⁿ ≤ 1 − level."""
        if self.at_most is None:
            return self.size or 0
        return math.ceil(math.log1p(-self.level) / math.log1p(-self.at_most))

    def draw(self, count: int) -> list[int]:
        """Numbers below `count` that rise, at most all of them."""
        return sorted(random.Random(self.seed).sample(range(count), min(self.wanted, count)))

    def limit(self, drawn: int, failed: int, count: int) -> float:
        """At most this share of all `count` are not confirmed, at the level; exact if all were drawn."""
        if drawn == count:
            return failed / count
        return limit(drawn, failed, self.level)


def limit(drawn: int, failed: int, level: float) -> float:
    """The p with P(Binomial(drawn, p) ≤ failed) = 1 − level, rounded up."""
    if failed >= drawn:
        return 1.0
    low, high = failed / drawn, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if at_most(failed, drawn, middle) > 1 - level:
            low = middle
        else:
            high = middle
    return high


def at_most(most: int, drawn: int, share: float) -> float:
    """P(Binomial(drawn, share) ≤ most)."""
    if share in (0.0, 1.0):
        return float(share == 0 or most >= drawn)
    odds, rest = math.log(share), math.log1p(-share)
    whole = math.lgamma(drawn + 1)
    ways = (whole - math.lgamma(one + 1) - math.lgamma(drawn - one + 1) for one in range(most + 1))
    return math.fsum(math.exp(way + one * odds + (drawn - one) * rest) for one, way in enumerate(ways))
