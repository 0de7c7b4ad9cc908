"""What a detector says: predictions and proofs, for all images as arrays and for each as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from functools import cached_property
from html import escape
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prood.bounds import Method, Norm
from prood.detector.rule import _NO_THRESHOLD, Rule
from prood.errors import BadValue
from prood.models.confidence import Floats

Reason = Literal["confidence", "discriminator"]
SHOWN = 20
"""Images in a notebook's table."""


@dataclass(frozen=True)
class Answer:
    """The prediction about one image; `accepted` is None without a threshold, `p_value` without a calibration.

    `reason` says which gate rejects the image, and is None where it is accepted: see `Prediction.reason`.
    """

    label: int
    name: str
    confidence: float
    p_in: float
    accepted: bool | None
    p_value: float | None
    reason: Reason | None = None


@dataclass(frozen=True, eq=False)
class Prediction:
    """One entry per image. `prediction[3]` is the fourth image's `Answer`, and iterating gives all of them.

    `name` is the class's name, or its number where the names are not known; `p_in` = σ(g(x) + Δ). `score` is
    log((c − 1/K)/(1 − c)) for the confidence c: the same order, but exact where c rounds to 1. `p_value` belongs to
    the hypothesis that the image is in-distribution; None without a calibration. `logits` (N, K) are those of Eq. 3,
    up to a constant for each image; `probabilities` makes the classes' probabilities from them.

    A bare discriminator knows no classes: the label is −1, the name "–", and `confidence`, what the threshold is
    compared with, is g.

    `cap` is the highest score that g allows: λ(g + Δ) of a gated model, g + Δ of another one, g of a discriminator.
    """

    label: NDArray[np.int64]
    name: tuple[str, ...]
    confidence: Floats
    p_in: Floats
    score: Floats
    rule: Rule
    p_value: Floats | None
    logits: NDArray[np.float32]
    cap: Floats

    def __repr__(self) -> str:
        verdict = "no threshold" if self.threshold is None else f"{int(self.accepted.sum())} accepted"
        return f"Prediction({_images(len(self))}, {verdict})"

    def _repr_html_(self) -> str:  # in a notebook
        columns = ("name", "confidence", "p_in", "accepted", "reason")
        return _table(columns, [[getattr(one, key) for key in columns] for one in islice(self, SHOWN)], len(self))

    @cached_property
    def probabilities(self) -> Floats:
        """Of all classes, (N, K), by Eq. 3. The label's is the confidence, from its own formula, which is certified."""
        if not self.logits.shape[1]:
            return self.logits.astype(float)
        weights = np.exp(self.logits - self.logits.max(1, keepdims=True).astype(float))
        weights *= (self.p_in / weights.sum(1))[:, None]
        weights += ((1 - self.p_in) / self.logits.shape[1])[:, None]
        found = np.minimum(weights, self.confidence[:, None], out=weights)
        np.put_along_axis(found, self.label[:, None], self.confidence[:, None], 1)
        return np.asarray(found)

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """confidence ≥ threshold, the one comparison by which an image is accepted."""
        return self.rule.accepts(self.confidence)

    @property
    def reason(self) -> tuple[Reason | None, ...]:
        """Which gate rejects each image: "discriminator" where g alone does, else "confidence"; None: accepted.

        Where g alone rejects an image, no classifier would get it accepted. Only such a rejection can be proved.
        """
        return tuple(self.rule.reasons(self.confidence, self.rule.value(self.cap)).tolist())

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
            self.rule.reasons(self.confidence[place], self.rule.value(self.cap[place])).item(),
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
    """What is proven about each image in the ball of radius `eps`. `proof[3]` is the fourth image's, as plain values.

    No image in the ball (and in [0, 1]^d) gets a confidence above `upper_bound` (Eq. 4); of a bare discriminator, no g.
    """

    upper_bound: Floats
    rule: Rule
    eps: float
    method: Method
    norm: Norm
    found: Floats | None = None  # the radii, where there is a threshold

    def __repr__(self) -> str:
        verdict = "no threshold" if self.threshold is None else f"{int(self.rejected.sum())} provably rejected"
        return f"Proof({_images(len(self))}, eps={self.eps:.4g}, norm={self.norm!r}, {verdict})"

    def _repr_html_(self) -> str:  # in a notebook
        columns = ("upper_bound", "rejected", "radius")
        return _table(columns, [[getattr(one, key) for key in columns] for one in islice(self, SHOWN)], len(self))

    @property
    def rejected(self) -> NDArray[np.bool_]:
        """Whether every image in the ball is provably rejected: upper_bound < threshold."""
        return self.rule.rejects(self.upper_bound)

    @property
    def threshold(self) -> float | None:
        return self.rule.threshold

    @property
    def radius(self) -> Floats:
        """The largest radius known at which it provably stays rejected; NaN where it is not (or not provably).

        It is searched only by `certify(…, radius=True)`. Otherwise it is `eps` where that is proven, else NaN.
        """
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


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], count: int) -> str:
    """HTML with four digits; bounds are rounded up there, so that what is shown is still proved."""
    lines = ["".join(f"<th>{name}</th>" for name in columns)]
    lines += [
        "".join(f"<td>{escape(_cell(value, name))}</td>" for value, name in zip(row, columns, strict=True))
        for row in rows
    ]
    shown = f"the first {len(rows)} of {_images(count)}" if count > len(rows) else _images(count)
    return f"<table><caption>{shown}</caption>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: object, name: str) -> str:
    if not isinstance(value, float) or not math.isfinite(value):
        return "–" if value is None else str(value)
    way = {"upper_bound": ROUND_CEILING, "radius": ROUND_FLOOR}.get(name, ROUND_HALF_EVEN)
    return str(Decimal(value).quantize(Decimal("0.0001"), way))


def _images(count: int) -> str:
    return f"{count:,} image" + "s" * (count != 1)
