"""The decision: what is compared with the threshold, for an image and for a whole ball, and how far a proof reaches.

And with it what a detector says: predictions and proofs, for all images as arrays and for each as plain values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prood.errors import BadValue
from prood.models.confidence import Floats, T, checked_threshold, confidence_bound, confidence_of, score_below

_NO_THRESHOLD = "the detector has no threshold: call calibrate(images) with in-distribution images, or give threshold=…"


@dataclass(frozen=True)
class Rule:
    """Accept an image if its value is at least `threshold`, a float64 number; here alone a value meets a threshold.

    The value of a joint model with `classes` classes is its confidence, the value of a bare discriminator (`classes` is
    None) is g itself. The bound of a ball's values follows from a bound of ḡ + Δ alone: a rule may use the classifier
    for images, and never for balls.
    """

    classes: int | None
    threshold: float | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and self.classes is not None:
            checked_threshold(self.threshold)
        elif self.threshold is not None and not math.isfinite(self.threshold):
            raise BadValue(f"a threshold is a finite number, not {self.threshold}")

    @property
    def required(self) -> float:
        if self.threshold is None:
            raise BadValue(_NO_THRESHOLD)
        return self.threshold

    def at(self, threshold: float | None) -> Rule:
        """The same values against another threshold."""
        return replace(self, threshold=None if threshold is None else float(threshold))

    def value(self, score: T) -> T:
        """What is compared, from a score: log((c − 1/K)/(1 − c)), or g."""
        return score if self.classes is None else confidence_of(score, self.classes)

    def bound(self, in_logit: T) -> T:
        """No image with g + Δ ≤ `in_logit` has a value above this (Eq. 4)."""
        return in_logit if self.classes is None else confidence_bound(in_logit, self.classes)

    def stop(self) -> float | None:
        """A score whose bound is surely below the threshold, and hardly any smaller than those whose is not."""
        if self.threshold is None or self.classes is None:
            return self.threshold
        return score_below(self.threshold, self.classes)

    def accepts(self, value: Any) -> NDArray[np.bool_]:
        """value ≥ threshold."""
        return np.asarray(value >= self.required)

    def rejects(self, bound: Any) -> NDArray[np.bool_]:
        """bound < threshold: every image in the ball is provably rejected."""
        return np.asarray(bound < self.required)

    def reasons(self, value: Any, cap: Any) -> NDArray[Any]:
        """Which gate rejects: "discriminator", "confidence", or None where an image is accepted or nothing decides.

        `cap` is the highest value that g allows. Where it is below the threshold, g alone rejects, whatever the
        classifier says; so every image of a ball that is provably rejected has the reason "discriminator".
        """
        if self.threshold is None:
            return np.full(np.shape(value), None)
        found = np.where(self.accepts(cap), "confidence", "discriminator").astype(object)
        found[self.accepts(value)] = None
        return found

    def reach(self, found: Floats, bounds: Floats, eps: Sequence[float]) -> Floats:
        """How far each image (N,) provably stays rejected; NaN where it does not.

        That is the radius `found` by bisection, which may end a step below one at which `bounds` (N, R) prove it.
        """
        proven = np.where(self.rejects(bounds), np.asarray(eps, dtype=np.float64), np.nan)
        return np.asarray(np.fmax(found, np.fmax.reduce(proven, axis=1, initial=np.nan)))
