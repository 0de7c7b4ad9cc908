"""The decision: what is compared with the threshold, for an image and for a whole ball, and how far a proof reaches.

And with it what a detector says: predictions and proofs, for all images as arrays and for each as plain values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prood.bounds import Method, Norm
from prood.errors import BadValue
from prood.models.confidence import Floats, T, checked_threshold, confidence_bound, confidence_of, score_below

_NO_THRESHOLD = "the detector has no threshold: call calibrate(images) with in-distribution images, or give threshold=…"


@dataclass(frozen=True)
class Rule:
    """Accept an image if its value is at least `threshold`, a float64 number; here alone a value meets a threshold.

    The value of a joint model with `classes` classes is its confidence, that of a bare discriminator (`classes` is
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

    def reach(self, found: Floats, bounds: Floats, eps: Sequence[float]) -> Floats:
        """How far each image (N,) provably stays rejected; NaN where it does not.

        That is the radius `found` by bisection, which may end a step below one at which `bounds` (N, R) prove it.
        """
        proven = np.where(self.rejects(bounds), np.asarray(eps, dtype=np.float64), np.nan)
        return np.asarray(np.fmax(found, np.fmax.reduce(proven, axis=1, initial=np.nan)))


@dataclass(frozen=True)
class Answer:
    """The prediction about one image; `accepted` is None without a threshold, `p_value` without a calibration."""

    label: int
    name: str
    confidence: float
    p_in: float
    accepted: bool | None
    p_value: float | None


@dataclass(frozen=True, eq=False)
class Prediction:
    """One entry per image. `prediction[3]` is the fourth image's `Answer`, and iterating gives all of them.

    `name` is the class's name, or its number where the names are not known; `p_in` = σ(g(x) + Δ). `score` is
    log((c − 1/K)/(1 − c)) for the confidence c: the same order, but with digits where c rounds to 1. `p_value` is that
    of the hypothesis that the image is in-distribution; None without a calibration. `probabilities` (N, K) are those of
    all classes, that of the label being the confidence itself.

    A bare discriminator knows no classes: the label is −1, the name "–", and `confidence`, what the threshold is
    compared with, is g.
    """

    label: NDArray[np.int64]
    name: tuple[str, ...]
    confidence: Floats
    p_in: Floats
    score: Floats
    rule: Rule
    p_value: Floats | None
    probabilities: Floats

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """confidence ≥ threshold, the one comparison by which an image is accepted."""
        return self.rule.accepts(self.confidence)

    @property
    def threshold(self) -> float | None:
        return self.rule.threshold

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, place: int) -> Answer:
        return Answer(
            int(self.label[place]),
            self.name[place],
            float(self.confidence[place]),
            float(self.p_in[place]),
            None if self.threshold is None else bool(self.rule.accepts(self.confidence[place])),
            None if self.p_value is None else float(self.p_value[place]),
        )

    def __iter__(self) -> Iterator[Answer]:
        return (self[place] for place in range(len(self)))


@dataclass(frozen=True)
class Certified:
    """The proof of one image; `rejected` and `radius` are None without a threshold."""

    upper_bound: float
    rejected: bool | None
    radius: float | None


@dataclass(frozen=True, eq=False)
class Proof:
    """What is proven about each image in the ball of radius `eps`. `proof[3]` is that of the fourth, as plain values.

    No image in the ball (and in [0, 1]^d) gets a confidence above `upper_bound` (Eq. 4); of a bare discriminator, no g.
    """

    upper_bound: Floats
    rule: Rule
    eps: float
    method: Method
    norm: Norm
    found: Floats | None = None  # the radii, where there is a threshold

    @property
    def rejected(self) -> NDArray[np.bool_]:
        """Whether every image in the ball is provably rejected: upper_bound < threshold."""
        return self.rule.rejects(self.upper_bound)

    @property
    def threshold(self) -> float | None:
        return self.rule.threshold

    @property
    def radius(self) -> Floats:
        """The largest radius found at which it provably stays rejected; NaN where it is not (or not provably)."""
        if self.found is None:
            raise BadValue(_NO_THRESHOLD)
        return self.found

    def __len__(self) -> int:
        return len(self.upper_bound)

    def __getitem__(self, place: int) -> Certified:
        bound = float(self.upper_bound[place])
        if self.threshold is None or self.found is None:
            return Certified(bound, None, None)
        return Certified(bound, bool(self.rule.rejects(bound)), float(self.found[place]))

    def __iter__(self) -> Iterator[Certified]:
        return (self[place] for place in range(len(self)))
