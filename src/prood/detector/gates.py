"""How the false rejections that a user allows are spent on two gates: the confidence, and g alone (docs/verdict.md).

If the share q of the in-distribution is to be rejected, g rejects the share s(q) of it and the confidence the rest.
Both thresholds rise with q, so an image that is rejected at one level is rejected at every higher one; and so the
thresholds of all levels are one function, the `Gate` λ of a model.
"""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from numpy.typing import NDArray

from prood.errors import BadValue, Diverged, Unsupported
from prood.models import Fusion, Gate, Gated, ProoD
from prood.models.confidence import Floats

KNEE, FULL = 0.05, 0.4
"""Up to the first level g spends the share `provable`; from the second on, `last` of what comes on top."""
LEVELS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
LEAST = 100
"""Images that a gate takes: with fewer, its lowest level is less than one of them."""


@dataclass(frozen=True)
class Schedule:
    """s(q) = w·q up to q = 5%; beyond, it grows at a rate that goes linearly from w to `last` at 40% and stays there.

    `provable` is w, the share of the false rejections that g may spend: 0 leaves all of them to the confidence.
    """

    provable: float
    last: float | None = None  # by default w, so that s(q) = w·q everywhere

    def __post_init__(self) -> None:
        for name, share in (("provable", self.provable), ("last", self.end)):
            if not 0 <= share <= 1:
                raise BadValue(f"{name} is a share of the false rejections between 0 and 1, not {share}")
        if self.end < self.provable:
            raise BadValue(f"last = {self.end} must not be below provable = {self.provable}: g would get less and less")

    @property
    def end(self) -> float:
        return self.provable if self.last is None else self.last

    def __call__(self, q: float) -> float:
        """s(q), the share of the in-distribution that g rejects where the share q is rejected in all."""
        low, beyond = min(q, KNEE), min(max(q - KNEE, 0.0), FULL - KNEE)
        rate = self.provable + (self.end - self.provable) * beyond / (FULL - KNEE)
        return self.provable * low + beyond * (self.provable + rate) / 2 + max(q - FULL, 0.0) * self.end


def gate_of(schedule: Schedule, scores: Floats, in_logits: Floats) -> Gate:
    """The gate that spends as the schedule says on in-distribution images with these joint scores S and g + Δ.

    At level q the threshold of g lies at the share s(q) of `in_logits`, and the threshold of the confidence so that q
    is rejected in all. The final threshold must come from other images, or its guarantee does not hold.
    """
    if len(scores) != len(in_logits) or len(scores) < LEAST:
        raise BadValue(f"{len(scores)} images are too few for a gate: give {LEAST} or more of the in-distribution")
    if not (np.isfinite(scores).all() and np.isfinite(in_logits).all()):
        raise Diverged("the score of an image is not finite: check the weights for NaN and infinity")
    if in_logits.min() == in_logits.max():
        raise Unsupported("g is equal on all images, so it cannot be a gate: train the discriminator again")
    if schedule.end == 0:
        return Gate()
    count, ordered, places = len(scores), np.sort(in_logits), np.arange(len(scores))
    knots: list[float] = []
    caps: list[float] = []
    for q in LEVELS:
        knot = float(np.interp(schedule(q) * count, places, ordered))
        passed = np.sort(scores[in_logits >= knot])
        cap = float(np.interp(q * count - (count - len(passed)), np.arange(len(passed)), passed))
        knot, cap = float(np.float32(knot)), float(np.float32(min(cap, knot)))  # as a model holds them
        if not knots or (knot > knots[-1] and cap > caps[-1]):  # equal scores make no level of their own
            knots.append(knot)
            caps.append(cap)
    return Gate(tuple(knots), tuple(caps))


Spent = float | Schedule | None
"""A share, a schedule, or the gate that a model has."""


def schedule_of(provable: Spent) -> Schedule:
    """The schedule that spends a share at every level."""
    if isinstance(provable, Schedule):
        return provable
    if provable is not None and not isinstance(provable, Real):
        points = "for the points default and strong use 'prood calibrate' or prood.studies.fit_schedule"
        raise BadValue(f"provable must be a share such as 0.3, or a Schedule, not {provable!r}: {points}")
    return Schedule(float(provable or 0.0))


def ungated(model: ProoD) -> ProoD:
    """The same joint model without its gate."""
    if isinstance(model, Fusion):
        raise Unsupported("a fused model cannot have a gate: make a joint model with 'prood combine'")
    return ProoD(model.classifier, model.discriminator, model.shift.item()).to(model.shift.device).eval()


def for_gate(count: int) -> NDArray[np.bool_]:
    """Which of these images make a gate, and whatever is chosen about it; the others make the threshold."""
    return np.asarray(np.random.default_rng(0).permutation(count) % 2 == 0)


def check_count(images: int) -> None:
    """Refuse fewer in-distribution images than a gate and a threshold need."""
    if (images + 1) // 2 < LEAST:
        raise BadValue(f"a gate takes {2 * LEAST} in-distribution images, not {images}: give more, or leave it out")


def gated(model: ProoD, schedule: Schedule, scores: Floats, in_logits: Floats) -> tuple[Gated, Floats]:
    """The joint model with the gate that half of these images make, and the scores of the other half with it."""
    check_count(len(scores))
    first = for_gate(len(scores))
    gate = gate_of(schedule, scores[first], in_logits[first])
    capped = gate(torch.from_numpy(in_logits[~first])).numpy()
    again = Gated(model.classifier, model.discriminator, gate, model.shift.item()).to(model.shift.device).eval()
    return again, np.minimum(scores[~first], capped)
