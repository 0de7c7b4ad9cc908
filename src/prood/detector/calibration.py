"""A rejection threshold with a finite-sample guarantee, and conformal p-values.

Let s₁ ≤ … ≤ sₙ be the sorted scores of n in-distribution images, and accept an image whose score is at least the
threshold s_k. If a score has a continuous distribution function F, then F(s_k) is the k-th smallest of n uniform
numbers, so the true positive rate of that threshold,

    TPR = 1 − F(s_k)  ~  Beta(n − k + 1, k),

whatever F is (Wilks, *Determination of sample sizes for setting tolerance limits*, 1941; for conformal prediction Vovk,
*Conditional validity of inductive conformal predictors*, 2012). The tail of a Beta distribution with whole parameters
is a binomial one:

    P(TPR ≥ r) = P(Binomial(n, 1 − r) ≥ k),

which falls with k. `order_statistic` takes the largest k for which it is still at least the level asked for.

Ties only help. Break them by independent random numbers: the theorem holds for the broken order, and an image that ties
with the threshold, which that order may reject, is accepted by ≥. So the true rate is at least as large. The same is
true where scores are rounded, as confidences near 1 are.
"""

from dataclasses import dataclass

import numpy as np

from prood.errors import BadValue
from prood.models.confidence import Floats, order_statistic, threshold_at


@dataclass(frozen=True, eq=False)
class Calibration:
    """A threshold, what is guaranteed of it, and the scores that it comes from.

    With probability at least `level` over the draw of the calibration images, a new in-distribution image has a
    confidence ≥ `threshold` with probability at least `accept`. `threshold` belongs to the `index`-th smallest score
    (counted from 1), and `score` is the same on the scale log((c − 1/K)/(1 − c)), as are `scores`, sorted.
    """

    threshold: float
    score: float
    index: int
    accept: float
    level: float
    scores: Floats

    @property
    def tpr(self) -> float:
        """`accept` by its name before."""
        return self.accept

    @property
    def confidence(self) -> float:
        """`level` by its name before."""
        return self.level

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        least = f"accepts at least {self.tpr:g} with confidence {self.confidence:g}"
        return f"Calibration({len(self):,} images, threshold={self.threshold:.4g}, {least})"

    def p_values(self, scores: Floats) -> Floats:
        """(1 + #{i: sᵢ ≤ s})/(n + 1): for an in-distribution image at most α with probability ≤ α, for every α.

        (Vovk, Gammerman and Shafer, *Algorithmic learning in a random world*, 2005.) On average over calibration sets,
        not for each as the threshold's guarantee. An image that is rejected has a p-value of at most k/(n + 1).
        """
        # Two confidences that round to the same number have different scores, so they are told apart here.
        return np.asarray((1 + np.searchsorted(self.scores, scores, side="right")) / (len(self) + 1))

    def doubt(self, outside: float, classes: int) -> str | None:
        """What speaks against these images being in-distribution, in one sentence; `classes` is 0 without a classifier.

        `outside` is the share of them that g holds for out-distribution: p(in) < 1/2. For images of the kind that g was
        trained with, most are not, and the few that are rejected are still more sure of their class than 1/K.
        """
        floor = 1 / classes if classes else 0.0
        facts = []
        if outside > 0.5:
            facts.append(f"g takes {outside:.0%} of these images for out-distribution")
        if classes and self.threshold - floor < 0.01 * (1 - floor):
            facts.append(f"the threshold {self.threshold:.4f} is hardly above 1/K = {floor:.4f}, where all is accepted")
        if not facts:
            return None
        advice = "calibrate with images like those of training, prepared alike, or choose a larger shift"
        return f"are the calibration images in-distribution? {' and '.join(facts)}: {advice}"


def calibrated(scores: Floats, values: Floats, *, accept: float, level: float) -> Calibration:
    """The calibration by these scores, and by what is compared of the same images: their confidences."""
    if np.isnan(scores).any():
        raise BadValue("a calibration score is NaN: check the images and the weights for NaN")
    k = order_statistic(len(scores), accept=accept, level=level)
    # Computed from the values themselves: the guarantee is about what is compared, the confidence.
    threshold, ordered = threshold_at(values, accept, level), np.sort(scores)
    return Calibration(threshold, float(ordered[k - 1]), k, accept, level, ordered)
