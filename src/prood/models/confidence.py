"""From a score to a confidence, from a threshold back to a score, and which of n scores is a threshold: once each.

A score s = log((c − 1/K)/(1 − c)) belongs to the confidence c = (K−1)/K·σ(s) + 1/K of a classifier with K classes. On
this scale the certificate of the joint model is ḡ + Δ itself, so the same formula gives the bound of Eq. 4.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prood.errors import BadValue, Unsupported

Floats = NDArray[np.float64]
T = TypeVar("T", float, Floats, Tensor)

ROOM = 2.0**-48
"""Far more, relative to a confidence, than a sigmoid and the few roundings around it may be off."""


def logistic(score: T) -> T:
    """σ in float64, of a number, an array or a tensor.

    NumPy gives equal numbers equal results wherever they stand in an array; torch does not, and `ROOM` covers that.
    """
    if isinstance(score, Tensor):
        return torch.sigmoid(score.double())
    if isinstance(score, np.ndarray):
        return np.asarray(1 / (1 + np.exp(-np.clip(score, -700, 700))))  # no overflow; beyond it is 0 or 1 anyway
    return 1 / (1 + math.exp(-min(max(score, -700.0), 700.0)))


def confidence_of(score: T, classes: int, sigmoid: Callable[[T], T] = logistic) -> T:
    """The confidence c = (K−1)/K·σ(s) + 1/K that has the score s."""
    return (classes - 1) / classes * sigmoid(score) + 1 / classes


def confidence_bound(score: T, classes: int, sigmoid: Callable[[T], T] = logistic, room: float = ROOM) -> T:
    """No confidence exceeds this whose score is at most `score`, however its sigmoid was rounded (Eq. 4)."""
    cap = confidence_of(score, classes, sigmoid)
    cap = cap + room * cap
    if isinstance(cap, Tensor):
        return cap.clamp(max=1)
    return np.minimum(cap, 1.0) if isinstance(cap, np.ndarray) else min(cap, 1.0)


def score_at(threshold: float, classes: int) -> float:
    """The score s of a confidence, up to rounding."""
    share = (checked_threshold(threshold) - 1 / classes) * classes / (classes - 1)
    if not 0 < share < 1:
        return -math.inf if share <= 0 else math.inf
    return math.log(share) - math.log1p(-share)


def score_below(threshold: float, classes: int) -> float:
    """A score whose confidence bound is surely below the threshold, and hardly any smaller."""
    score = score_at(threshold, classes)
    return score - 1e-6 * (1 + abs(score)) if math.isfinite(score) else score


def checked_threshold(threshold: float) -> float:
    """A confidence, for nothing is below NaN and everything below 2."""
    if not 0 <= threshold <= 1:
        raise BadValue(f"a threshold is a confidence between 0 and 1, not {threshold}")
    return float(threshold)


def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values under their present names; former names stay for one version."""
    former = {"tpr": "accept", "confidence": "level", "method": "bound"}
    return {former.get(name, name): value for name, value in values.items()}


def threshold_at(scores: Floats, accept: float, level: float | None = None) -> float:
    """The largest of these scores t with P(s ≥ t) ≥ `accept`: for themselves, or as `order_statistic` guarantees it."""
    return float(np.sort(scores)[order_statistic(len(scores), accept=accept, level=level) - 1])


def order_statistic(n: int, *, accept: float, level: float | None = None) -> int:
    """Which of n sorted scores is the threshold, counted from 1.

    Without `level` the largest k for which the share (n − k + 1)/n of these scores is at least `accept`. With it
    the largest k with P(Beta(n − k + 1, k) ≥ accept) ≥ level: a promise about new images (`detector.calibration`).
    """
    if not (accept == 1 and level is None):
        _check_promise(accept, level)
    if level is None:
        # The smallest count with count/n ≥ accept; ⌈accept·n⌉ is one too many where the product is rounded up.
        return n - int(np.searchsorted(np.arange(1, n + 1) / n, accept))
    # P(Binomial(n, 1 − accept) ≥ k) ≥ level, that is log P(Binomial ≤ k − 1) ≤ log(1 − level): summed from the
    # first term on, with the ratio of neighbours, so that nothing underflows.
    limit = math.log1p(-level)
    odds = math.log1p(-accept) - math.log(accept)
    term = below = n * math.log(accept)
    k = 0
    while k < n and below <= limit:
        k += 1
        term += math.log((n - k + 1) / k) + odds
        below = max(below, term) + math.log1p(math.exp(-abs(below - term)))
    if k == 0:
        least = needed(accept, level)
        raise BadValue(f"{n} images are too few to accept {accept} at level {level}: give {least} or more")
    return k


def needed(accept: float, level: float) -> int:
    """The fewest images from which there is a threshold: the smallest n with 1 − acceptⁿ ≥ level."""
    _check_promise(accept, level)
    limit, step = math.log1p(-level), math.log(accept)
    n = max(1, math.floor(limit / step))
    while n * step > limit:  # the very comparison that `order_statistic` makes
        n += 1
    return n


def _check_promise(accept: float, level: float | None) -> None:
    if not 0 < accept < 1:
        raise BadValue(f"accept is a share above 0 and below 1, not {accept}")
    if level is not None and not 0 < level < 1:
        raise BadValue(f"level is a probability above 0 and below 1, not {level}")


def look_like_probabilities(values: Tensor) -> bool:
    """Whether every row is a distribution. Logits of several images are not, but by a miracle."""
    within = bool(((values >= 0) & (values <= 1 + 1e-3)).all())
    return within and bool(((values.double().sum(1) - 1).abs() < 1e-2).all())


def check_logits(logits: Tensor) -> None:
    """Refuse a softmax's output: taken for logits, no class would ever be much more probable than another.

    Of fewer than four images nothing is said: logits of one may sum to 1 by chance.
    """
    if len(logits) >= 4 and look_like_probabilities(logits):
        fault = "the classifier returns probabilities (no number is negative, and each row sums to 1), not logits"
        raise Unsupported(f"{fault}: leave out its softmax, or return their logarithms")
