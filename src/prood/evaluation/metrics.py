"""How well scores tell in- from out-distribution.

A higher score means in-distribution. In the paper's convention comparisons are strict, ties lose, and the
in-distribution is the positive class; `auc_ties_half` and `fpr_out_positive` are there to compare with other work.

`auc` and `fpr` see an out-distribution score h(z) only through c(z) = #{x : h(x) ≤ h(z)}, the number of in-distribution
scores that do not beat it. A bootstrap resample changes these numbers, but not the order of the scores: they are sorted
once, and c is a running sum of how often each x was drawn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from prood.errors import BadValue, Diverged, UnknownName
from prood.evaluation.words import PROVED
from prood.models.confidence import order_statistic, threshold_at

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Values = Tensor | NDArray[np.floating[Any]]

CHUNK = 2**18  # images drawn at a time by the bootstrap: a few arrays of 2 MB, which caches like
TPR = 0.95
ACCEPT = tuple(count / 200 for count in range(100, 199))
"""Where the price of proof is drawn: 50% to 99% of the in-distribution accepted, in steps of half a percent."""


def auc(inside: Values, outside: Values) -> float:
    """P(h(x) > h(z)) for x from the in- and z from the out-distribution (Section 4.2), in O(n log n).

    With upper bounds of the out-distribution scores as `outside` it is the guaranteed AUC, with attacked scores the
    adversarial one; a bound of +∞ counts as lost against every in-distribution score.
    """
    inside, outside = _read(inside), _read(outside)
    return float(_auc(_places(inside, outside), len(inside)))


def fpr(inside: Values, outside: Values, tpr: float = TPR) -> float:
    """P(h(z) ≥ t) at t = `threshold(inside, tpr)`: out-distribution images taken for in-distribution ones.

    A bound of +∞ is a false positive at every threshold.
    """
    inside, outside = _read(inside), _read(outside)
    return float(_fpr(_places(inside, outside), len(inside), tpr))


def rejected(inside: Values, outsides: Mapping[str, Values], accept: Iterable[float] = ACCEPT) -> dict[str, Floats]:
    """P(h(z) < t) at each t = `threshold(inside, share)`, for shares of the in-distribution that are accepted.

    This is 1 − `fpr`, for several scores of out-distribution images by name. With certified bounds it is the share that
    is provably rejected. A bound of +∞ is below no threshold: without a certificate nothing is proved.
    """
    inside, shares = _read(inside), tuple(accept)
    places = {name: _places(inside, _read(values)) for name, values in outsides.items()}
    return {
        name: np.array([_rejected(counts, len(inside), share) for share in shares]) for name, counts in places.items()
    }


def threshold(inside: Values, tpr: float = TPR) -> float:
    """The largest in-distribution score t with P(h(x) ≥ t) ≥ `tpr`: a quantile without interpolation."""
    return threshold_at(_read(inside), tpr)


def auc_ties_half(inside: Values, outside: Values) -> float:
    """P(h(x) > h(z)) + ½P(h(x) = h(z)), as scikit-learn's `roc_auc_score`; equal infinities are ties."""
    return (auc(inside, outside) + (1 - auc(outside, inside))) / 2


def fpr_out_positive(inside: Values, outside: Values, tpr: float = TPR) -> float:
    """P(h(x) ≤ t) at the smallest out-distribution score t with P(h(z) ≤ t) ≥ `tpr`.

    OpenOOD's convention: the out-distribution is the positive class, and in-distribution images are the false alarms.
    """
    return fpr(-_read(outside), -_read(inside), tpr)


def aupr_out_positive_interpolated(inside: Values, outside: Values) -> float:
    """Area under precision over recall, with the out-distribution positive: of images with h ≤ t, those from outside.

    Trapezoids between the points of all distinct scores, from precision 1 at recall 0 on, as in OpenOOD. It depends on
    how many images there are of each kind.
    """
    return aupr_in_positive_interpolated(-_read(outside), -_read(inside))


def aupr_in_positive_interpolated(inside: Values, outside: Values) -> float:
    """Precision with the in-distribution positive: the share from inside among images with h ≥ t."""
    false, true = (count[1:] for count in roc(inside, outside))
    within, beyond = true * _read(inside).size, false * _read(outside).size
    precision = np.append(1.0, within / (within + beyond))
    return float(np.sum(np.diff(true, prepend=0.0) * (precision[1:] + precision[:-1]) / 2))


def roc(inside: Values, outside: Values) -> tuple[Floats, Floats]:
    """The points (P(h(z) ≥ t), P(h(x) ≥ t)) from (0, 0) to (1, 1), one for each distinct score t, falling.

    Between two points the curve goes right first, then up, since ties lose (in matplotlib `step(…, where="post")`).
    The area under these steps, Σᵢ (fprᵢ₊₁ − fprᵢ)·tprᵢ, is `auc`; straight lines would have the area `auc_ties_half`.
    """
    inside, outside = np.sort(_read(inside)), np.sort(_read(outside))
    thresholds = np.unique(np.concatenate([inside, outside]))[::-1]
    reached = (len(values) - np.searchsorted(values, thresholds) for values in (outside, inside))
    false, true = (np.append(0, count) / count[-1] for count in reached)
    return false, true


def intervals(
    inside: Values, outsides: Mapping[str, Values], *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, dict[str, tuple[float, float]]]:
    """Percentile intervals of several scores of the same out-distribution images, by metric and name.

    The metrics are "auc", "fpr", and the shares that are `rejected` under the names of `PROVED`.
    In- and out-distribution images are drawn anew, with replacement. What is drawn depends on the seed and the two
    sizes alone: clean, attacked and certified scores share their resamples, and the ends of their intervals are ordered
    as the values are. The ends are values of resamples, not interpolated.
    """
    if resamples < 1 or not 0 < level < 1:
        raise BadValue(f"a bootstrap needs resamples ≥ 1 and 0 < level < 1, not {resamples} and {level}")
    inside = _read(inside)
    size = len(inside)
    inside_places = _places(inside, inside)
    outside_places = {name: _places(inside, _read(values)) for name, values in outsides.items()}
    sizes = {len(places) for places in outside_places.values()}
    if len(sizes) != 1:
        raise BadValue("a bootstrap needs scores of the same out-distribution images")
    found: dict[str, dict[str, list[Floats]]] = {metric: {name: [] for name in outsides} for metric in _OF_COUNTS}
    for drawn_inside, drawn_outside in _draws(size, sizes.pop(), resamples, seed):
        bins = (size + 1) * np.arange(len(drawn_inside))[:, None]  # each resample counts in a row of its own
        drawn = np.bincount((inside_places[drawn_inside] + bins).ravel(), minlength=bins.size * (size + 1))
        not_above = drawn.reshape(bins.size, size + 1).cumsum(axis=1)  # [r, p]: drawn x with place ≤ p
        for name, places in outside_places.items():
            counts = not_above.take(places[drawn_outside] + bins)
            for metric, of_counts in _OF_COUNTS.items():
                found[metric][name].append(of_counts(counts, size))
    left_out = int((1 - level) / 2 * (resamples - 1))  # at each end

    def ends(values: list[Floats]) -> tuple[float, float]:
        ordered = np.sort(np.concatenate(values))
        return float(ordered[left_out]), float(ordered[-1 - left_out])

    return {metric: {name: ends(values) for name, values in parts.items()} for metric, parts in found.items()}


def bootstrap(
    metric: str, inside: Values, outside: Values, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """The percentile interval of one metric of one kind of scores; see `intervals`."""
    if metric not in _OF_COUNTS:
        raise UnknownName(f"no bootstrap of {metric!r}: choose one of {', '.join(_OF_COUNTS)}")
    return intervals(inside, {"": outside}, resamples=resamples, level=level, seed=seed)[metric][""]


def _read(values: Values) -> Floats:
    # Not every accelerator knows float64, and numpy does not know bfloat16: first to the CPU, then double, then numpy.
    array = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else values
    scores = np.asarray(array, dtype=np.float64).ravel()
    if not scores.size:
        raise BadValue("a metric needs at least one score from inside and one from outside")
    if np.isnan(scores).any():
        raise Diverged("a score is not a number: the model has diverged or its input was damaged")
    return scores


def _places(inside: Floats, values: Floats) -> Counts:
    """c(v) = #{x : h(x) ≤ v}. For an x among them and any v, h(x) ≤ v just where c(h(x)) ≤ c(v)."""
    return np.searchsorted(np.sort(inside), values, side="right")


def _auc(not_above: Counts, size: int) -> Floats:
    """1 − E[c(z)]/n over the last axis; whole numbers up to the last division, so that it is rounded only once."""
    pairs = size * not_above.shape[-1]
    return np.asarray((pairs - not_above.sum(axis=-1)) / pairs)


def _fpr(not_above: Counts, size: int, tpr: float = TPR) -> Floats:
    """P(c(z) > n − k) over the last axis: h(z) reaches the k-th largest h(x) if at most k − 1 of them are above it."""
    reaching = np.count_nonzero(not_above > order_statistic(size, accept=tpr) - 1, axis=-1)
    return np.asarray(reaching / not_above.shape[-1])


def _rejected(not_above: Counts, size: int, accept: float) -> Floats:
    return 1 - _fpr(not_above, size, accept)


_OF_COUNTS: dict[str, Callable[[Counts, int], Floats]] = {
    "auc": _auc,
    "fpr": _fpr,
    **{name: partial(_rejected, accept=share) for name, share in PROVED.items()},
}


def _draws(inside: int, outside: int, resamples: int, seed: int) -> Iterator[tuple[Counts, Counts]]:
    """Indices of the images drawn, a row a resample, in chunks whose size has no influence on them."""
    generators = np.random.default_rng(seed).spawn(2)
    rows = max(1, CHUNK // (inside + outside))
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        first, second = (g.integers(n, size=(count, n)) for g, n in zip(generators, (inside, outside), strict=True))
        yield first, second
