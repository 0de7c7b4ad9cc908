"""How much of the false rejections g should spend: a `Schedule`, fitted on held-back images (docs/verdict.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np
import torch

from prood import data, processes
from prood.data import ImageSet
from prood.detector import Detector
from prood.detector.files import keep
from prood.detector.gates import LEAST, Schedule, for_gate, gate_of, ungated
from prood.errors import AlreadyThere, BadValue, UnknownName
from prood.evaluation.metrics import auc, fpr
from prood.evaluation.runs import part_of
from prood.models import MODEL_FILE, Gate, ProoD, load
from prood.models.fusion import product_logit
from prood.studies.pairs import Pairs, Scores, pairs_of

ACCEPTED = (0.95, 0.9, 0.8)
"""Shares of the in-distribution that are accepted where verdicts are compared."""
FIRST = tuple(np.round(np.arange(0, 1.001, 0.05), 2).tolist())
LAST = (0.3, 0.5, 0.7, 0.95)  # and the first share itself
TRUST = 0.01
"""So much GFPR a share that is higher by 1 must gain, at the beginning and at the end of a schedule: less than the
standard error on a thousand images. Where held-back images are easy, all schedules prove alike and look cheap."""
SHOWN = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)


@dataclass(frozen=True)
class Price:
    """What proofs may cost on held-back images: a higher FPR at 95% accepted, and a lower AUC; fractions of 1."""

    fpr: float
    auc: float = 0.015

    def __post_init__(self) -> None:
        if not (0 <= self.fpr <= 1 and 0 <= self.auc <= 1):
            raise BadValue(f"a price is a difference of rates between 0 and 1, not {self.fpr} and {self.auc}")


PRICES = {"default": Price(0.015), "strong": Price(0.05)}


@dataclass(frozen=True)
class Verdicts:
    """A rule on images that it was not made from: `fpr` and `gfpr` at each acceptance of ACCEPTED."""

    auc: float
    gauc: float
    fpr: tuple[float, ...]
    gfpr: tuple[float, ...]

    def cells(self) -> list[str]:
        """As `heads` says, in percent."""
        rates = [(1 - one, 1 - sure) for one, sure in zip(self.fpr, self.gfpr, strict=True)]
        return [f"{100 * one:.1f} / {100 * sure:.1f}" for one, sure in ((self.auc, self.gauc), *rates)]


@dataclass(frozen=True)
class Spending:
    """The schedule that was chosen, and the verdicts with it and without any gate."""

    schedule: Schedule
    with_it: Verdicts
    without: Verdicts


def price(name: str) -> Price:
    if name not in PRICES:
        raise UnknownName(f"unknown point {name!r}: choose {' or '.join(PRICES)}, or a share such as 0.2")
    return PRICES[name]


def fit_schedule(samples: Sequence[Pairs], shift: float, most: Price) -> Spending:
    """The schedule with the fewest images that are not provably rejected, at no more than this price.

    "Fewest" is the mean GFPR over ACCEPTED, with `TRUST` for what is spent.
    """
    without = judged(samples, shift, Schedule(0.0))
    affordable = [Spending(Schedule(0.0), without, without)]
    for schedule in _schedules():
        found = judged(samples, shift, schedule)
        if found.fpr[0] - without.fpr[0] <= most.fpr and without.auc - found.auc <= most.auc:
            affordable.append(Spending(schedule, found, without))
    return min(affordable, key=lambda one: mean(one.with_it.gfpr) + TRUST * (one.schedule.provable + one.schedule.end))


@dataclass(frozen=True)
class Asked:
    """What `prood calibrate` sets: the acceptance, how sure it is, and the share of false rejections that g spends.

    `provable` is a number, or the name of a point of PRICES, which is fitted against the images outside.
    """

    accept: float = 0.95
    level: float = 0.95
    provable: str | None = None

    def schedule(self, samples: Sequence[Pairs], shift: float) -> Schedule | None:
        """The schedule of `provable`; the samples are of the images that make the gate, half of all."""
        if isinstance(self._point(), Price):
            self.check(2 * len(samples[0].g_in) if samples else 4 * LEAST, outside=bool(samples))
        point = self._point()
        return fit_schedule(samples, shift, point).schedule if isinstance(point, Price) else point

    def check(self, images: int, *, outside: bool) -> bool:
        """Whether there will be a gate; refused where so few in-distribution images, or none outside, forbid it."""
        point = self._point()
        if isinstance(point, Price) and not outside:
            raise BadValue(f"the point {self.provable!r} is fitted against images outside: name some with --outside")
        if isinstance(point, Price) and images < 4 * LEAST:
            least = 4 * LEAST
            raise BadValue(f"the point {self.provable!r} takes {least} in-distribution images: give more, or a share")
        if isinstance(point, Schedule) and point.end > 0 and (images + 1) // 2 < LEAST:  # half of them make it
            raise BadValue(f"a gate takes {2 * LEAST} in-distribution images, not {images}: give more, or leave it out")
        return isinstance(point, Price) or (point is not None and point.end > 0)

    def _point(self) -> Schedule | Price | None:
        if self.provable is None:
            return None
        try:
            return Schedule(float(self.provable))
        except ValueError:
            return price(self.provable)


def table(samples: Sequence[Pairs], shift: float) -> list[list[str]]:
    """Shares that g may spend, each with the percentages rejected and provably rejected at each acceptance."""
    lines = [[f"{share:g}", *judged(samples, shift, Schedule(share)).cells()] for share in SHOWN]
    return [["provable", *heads(ACCEPTED)], *lines]


def heads(accepted: Sequence[float]) -> list[str]:
    return ["AUC / GAUC, %", *(f"{100 * share:.0f}% accepted: rejected / provably" for share in accepted)]


def judged(samples: Sequence[Pairs], shift: float, schedule: Schedule) -> Verdicts:
    """The mean over these sets, and over halves of the in-distribution: a gate from one, verdicts from the other."""
    return verdicts([part for sample in samples for part in _halves(sample, shift, schedule)])


def verdicts(parts: Sequence[Scores]) -> Verdicts:
    """Means over these."""
    return Verdicts(
        mean(auc(inner, outer) for inner, outer, _ in parts),
        mean(auc(inner, sure) for inner, _, sure in parts),
        tuple(mean(fpr(inner, outer, share) for inner, outer, _ in parts) for share in ACCEPTED),
        tuple(mean(fpr(inner, sure, share) for inner, _, sure in parts) for share in ACCEPTED),
    )


def gate_from(sample: Pairs, shift: float, schedule: Schedule) -> Gate:
    """The gate that the in-distribution images of a sample make."""
    in_logits = sample.g_in.double() + shift
    return gate_of(schedule, product_logit(sample.s_in, in_logits).numpy(), in_logits.numpy())


def _halves(sample: Pairs, shift: float, schedule: Schedule) -> Iterator[Scores]:
    halves = [replace(sample, s_in=sample.s_in[start::2], g_in=sample.g_in[start::2]) for start in (0, 1)]
    for one, other in (halves, halves[::-1]):
        yield other.scores(shift, gate_from(one, shift, schedule))


def _schedules() -> Iterator[Schedule]:
    for first in FIRST:
        for last in sorted({first, *(share for share in LAST if share > first)}):
            yield Schedule(first, last)


@dataclass(frozen=True)
class Outliers:
    """Sets outside, by name, `limit` images of each, and the radius of the proofs about them."""

    sets: Sequence[str] = ()
    eps: float | None = None
    limit: int = 1000


@dataclass(frozen=True)
class Calibrated:
    """What `prood calibrate` shows: the price of proofs, if it is known, and what was set.

    `accuracy` is that on the images of the threshold, where they have labels: a low one tells of a wrong preprocessing.
    """

    table: list[list[str]]
    words: str
    accuracy: float | None = None


def calibrate_model(
    path: str,
    images: str,
    asked: Asked | None,
    *,
    outliers: Outliers,
    out: Path | None = None,
    device: str | None = None,
) -> Calibrated:
    """Show what verdicts cost, and set the point that is asked for, in the model's own folder or in `out`."""
    model, about = load(path)
    detector = Detector(
        model, threshold=about.threshold, device=processes.device(device)
    )  # an old calibration may be damaged
    folder = Path(path) if out is None else out
    if asked is not None and out is None and not folder.is_dir():
        raise BadValue(f"{path} is not a folder: name one for the calibrated model with --out")
    if out is not None and (out / MODEL_FILE).exists():
        raise AlreadyThere(f"{out} already holds a model: choose another folder")
    inside = data.load(images, shape=detector.shape).numbered_as(detector.classes)
    samples = _samples(detector.joint(), inside, outliers, about.eps)
    shown = table(samples, detector.shift) if samples else []
    if asked is None:
        return Calibrated(shown, "nothing was set: choose a point with --accept and --provable")
    mine = torch.from_numpy(
        for_gate(len(inside))
    )  # a choice that the threshold's images had a say in breaks the promise
    chosen_by = [replace(one, s_in=one.s_in[mine], g_in=one.g_in[mine]) for one in samples]
    schedule = asked.schedule(chosen_by, detector.shift)
    found = detector.calibrate(inside, accept=asked.accept, level=asked.level, provable=schedule)
    keep(detector, folder, about)
    spent = "" if schedule is None else f"; g spends {schedule.provable:.0%} of the false rejections"
    words = f"accepts {100 * asked.accept:g}% of {images} (confidence ≥ {found.threshold:.6g}){spent}; wrote {folder}"
    return Calibrated(shown, words, _accuracy(detector, inside))


def _accuracy(detector: Detector, images: ImageSet) -> float | None:
    if images.labels is None or int(images.labels.max()) >= detector.count:
        return None
    return float((detector.predict(images).label == images.labels.numpy()).mean())


def _samples(model: ProoD, inside: ImageSet, outliers: Outliers, trained_for: float | None) -> list[Pairs]:
    if not outliers.sets:
        return []
    eps = trained_for if outliers.eps is None else outliers.eps
    if eps is None:
        raise BadValue("the model's file names no radius: give one with --eps")
    sets = {name: part_of(name, inside, outliers.limit, 0) for name in outliers.sets}
    bare = ungated(model)
    return list(pairs_of(bare.classifier, bare.discriminator, inside, sets, eps, device=bare.shift.device).values())
