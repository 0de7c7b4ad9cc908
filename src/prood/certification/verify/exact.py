"""Arithmetic that can be trusted: outward rounding in float64, and arb where a function is transcendental.

**Float64 with slack.** Large sums are computed by NumPy in float64, in whatever order its library chooses. By the lemma
of `rounding` with u = 2⁻⁵³, a sum of n products is off by at most (n + 1)u/(1 − (n + 1)u) times the exact sum S of the
absolute terms, plus n·2⁻¹⁰⁷⁴. We pay (n + 32)·2⁻⁵¹·S instead, where S may itself be the *computed* sum of non-negative
terms: four times as much, which also covers the handful of operations around it. A sum of non-negative terms alone is
off by a relative error of the same size; it is made larger by 2⁻³⁰ of itself, which covers every n < 2²⁰. Both are
far below the rounding of the deployed float32 network, so nothing is lost.

`up(x)` ≥ y for the exact result y of one or two operations that float64 rounded to x: 2⁻⁵⁰ of itself is eight times the
rounding, and the constant, 2⁻¹⁰⁰⁰, covers underflow.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prood.extras import require_packages

Array = NDArray[np.float64]

U32 = 2.0**-24
TINY32 = 2.0**-126  # below it, float32 results and operands may be flushed to zero
LARGE32 = 2.0**127  # above it, float32 may overflow
EXP_ULPS = 8 * U32  # the deployed exponential is off by 4 units in the last place at most
SPREAD = 17 * U32

_RELATIVE, _SMALLEST = 2.0**-50, 2.0**-1000
MORE = 1 + 2.0**-30  # for sums of non-negative terms


class Undecided(Exception):
    """Why nothing can be said."""


class Refuted(Exception):
    """A fact that contradicts the certificate."""


def up(x: Array) -> Array:
    """At least what `x` would be without its last two roundings."""
    return x + (np.abs(x) * _RELATIVE + _SMALLEST)


def down(x: Array) -> Array:
    return -up(-x)


def slack(count: int) -> float:
    """Times the absolute terms' sum: more than float64 loses in a sum of `count` products."""
    if count >= 2**20:
        raise Undecided("too large: a layer has more than a million values")
    return (count + 32) * 2.0**-51


def require(values: Array) -> Array:
    """Where float64 itself overflowed, there is no bound."""
    if not np.isfinite(values).all():
        raise Undecided("the weights are too large: the bound overflows")
    return values


def flint() -> Any:
    require_packages("verify", "flint", what="verifying")
    import flint

    return flint


def least_exponentials(logarithms: NDArray[np.float32]) -> Array:
    """w with w ≤ ŵ ≤ (1 + 17u)·w for every value ŵ that the deployed exp may return, where that is a normal float32.

    ŵ lies in e^h·[1 − 8u, 1 + 8u]. The arb ball of e^h proves w ≤ e^h·(1 − 8u) and (1 + 17u)·w ≥ e^h·(1 + 8u). Results
    that are subnormal or may be flushed differ from w by at most 2⁻¹²⁴; the caller pays for that.
    """
    arb = flint().arb
    found = []
    for value in logarithms.ravel().tolist():
        exact = arb(value).exp()
        if not exact < LARGE32:
            raise Undecided("a last weight, −exp(h), overflows float32")
        w = float(exact.mid()) * (1 - EXP_ULPS - 2.0**-40)
        if w > 2.0**-125:
            assert arb(w) <= exact * (1 - arb(EXP_ULPS))
            assert arb(w) * (1 + arb(SPREAD)) >= exact * (1 + arb(EXP_ULPS))
        found.append(max(w, _SMALLEST))
    return np.array(found).reshape(logarithms.shape)


def in_logit(bound: float, shift: float) -> float:
    """b + Δ, rounded to float32 as the model does. A sum just below zero may become zero there, and so does this."""
    with np.errstate(over="ignore"):
        total = float(np.float32(bound) + np.float32(shift))
    return 0.0 if -TINY32 < total < 0 else total


def confidence_is_too_small(confidence: float, score: float, classes: int) -> bool:
    """Whether `confidence` < (K−1)/K·σ(s) + 1/K for certain."""
    arb = flint().arb
    sigmoid = arb(1) if score == np.inf else 1 / (1 + (-arb(score)).exp())
    return bool(arb(confidence) < (arb(classes - 1) * sigmoid + 1) / classes)
