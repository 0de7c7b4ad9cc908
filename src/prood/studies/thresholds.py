"""What a user asks of a threshold: how much to accept, how much g may spend; and setting it, as `prood calibrate` does.

For a joint model that is about to be made, what cannot be met is refused before, and the rest is set after.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from prood import data, processes
from prood.data import ImageSet
from prood.detector import Detector
from prood.detector.files import keep
from prood.detector.gates import LEAST, Schedule, check_count, for_gate, ungated
from prood.errors import AlreadyThere, BadValue, ProodError
from prood.evaluation.sets import part_of
from prood.models import MODEL_FILE, Discriminator, ProoD, load
from prood.models.confidence import needed
from prood.studies.gating import Price, fit_schedule, price, table
from prood.studies.pairs import Pairs, pairs_of


@dataclass(frozen=True)
class Asked:
    """What `prood calibrate` sets: the acceptance, how sure it is, and the share of false rejections that g spends.

    `provable` is a number, or the name of a point of PRICES, which is fitted against the images outside.
    """

    accept: float = 0.95
    level: float = 0.95
    provable: str | None = None

    @property
    def fitted(self) -> bool:
        """Whether images outside have a say."""
        return isinstance(self._point(), Price)

    def schedule(self, samples: Sequence[Pairs], shift: float) -> Schedule | None:
        """The schedule of `provable`; the samples are of the images that make the gate, half of all."""
        point = self._point()
        if not isinstance(point, Price):
            return point
        self._check_fit(2 * len(samples[0].g_in) if samples else 4 * LEAST, outside=bool(samples))
        return fit_schedule(samples, shift, point).schedule

    def check(self, images: int, *, outside: bool) -> None:
        """Refuse what this number of in-distribution images, with or without sets outside, cannot give."""
        point, least = self._point(), needed(self.accept, self.level)
        if isinstance(point, Price):
            self._check_fit(images, outside=outside)
        if gate := isinstance(point, Price) or (point is not None and point.end > 0):
            check_count(images)
        if images // (2 if gate else 1) < least:
            half, total = (", of which half make the gate,", 2 * least) if gate else ("", least)
            fault = f"{images} images{half} are too few to accept {self.accept} at level {self.level}"
            raise BadValue(f"{fault}: give {total} or more")

    def _check_fit(self, images: int, *, outside: bool) -> None:
        if not outside:
            raise BadValue(f"the point {self.provable!r} is fitted against images outside: name some with --outside")
        if images < 4 * LEAST:
            fault = f"the point {self.provable!r} takes {4 * LEAST} in-distribution images, not {images}"
            raise BadValue(f"{fault}: give more, or a share such as 0.2")

    def _point(self) -> Schedule | Price | None:
        if self.provable is None:
            return None
        try:
            return Schedule(float(self.provable))
        except ValueError:
            return price(self.provable)


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


@dataclass(frozen=True)
class Threshold:
    """`images` is the name of an in-distribution image set that the model is not trained on."""

    images: str
    asked: Asked = field(default_factory=Asked)
    outliers: Outliers = field(default_factory=Outliers)

    def check(self, discriminator: Path | str) -> None:
        """Refuse at once what is wrong with the set or the point: a training may take hours before it is asked for."""
        model, _ = load(discriminator)
        shape = model.image if isinstance(model, Discriminator) else None  # others are refused by who makes the model
        count = len(data.open_set(self.images, shape=shape))
        for name in self.outliers.sets:
            data.find(name)
        self.asked.check(count, outside=bool(self.outliers.sets))

    def set(self, run: Path | str, device: str | None = None) -> Calibrated:
        """Give the model in the folder `run` this threshold."""
        try:
            return calibrate_model(str(run), self.images, self.asked, outliers=self.outliers, device=device)
        except ProodError as error:
            fault = f"{error} ({run} has a model without this threshold: see 'prood calibrate --help')"
            raise BadValue(fault) from error


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
    if asked is not None:
        asked.check(len(inside), outside=bool(outliers.sets))  # before the work
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
        raise BadValue("the model's file does not state a radius: give one with --eps")
    sets = {name: part_of(name, inside, outliers.limit, 0) for name in outliers.sets}
    bare = ungated(model)
    return list(pairs_of(bare.classifier, bare.discriminator, inside, sets, eps, device=bare.shift.device).values())
