"""What was measured, as data: one `Evaluation` per model, out-distribution and radius, and the files that hold them."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prood.atomic import replacing, write_text
from prood.errors import ProodError
from prood.version import __version__

RESULTS_FILE = "results.json"
SCORES_FOLDER = "scores"
FORMAT = 2

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """The numbers behind an evaluation, for histograms and curves: one float64 score per image.

    `attacked` is None where no attack was run; `certified` is +∞ where there is no certificate. `gallery` names the
    images (places in `clean`) with the highest attacked and certified scores, and shows them before and after the
    attack as uint8 (k, C, H, W).
    """

    inside: Floats
    clean: Floats
    certified: Floats
    attacked: Floats | None = None
    gallery: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    gallery_clean: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 1, 1, 1), np.uint8))
    gallery_attacked: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 1, 1, 1), np.uint8))

    def save(self, file: Path) -> None:
        arrays = {name: value for name, value in vars(self).items() if value is not None}
        with replacing(file) as aside, aside.open("wb") as opened:
            np.savez_compressed(opened, **arrays)

    @staticmethod
    def load(file: Path) -> Scores:
        try:
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                return Scores(**{name: arrays[name] for name in arrays.files})
        except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
            fault = " ".join(str(error).split())
            raise ProodError(f"{file} cannot be read ({fault}): evaluate again") from None


@dataclass(frozen=True)
class Evaluation:
    """One model against one out-distribution at one radius. Fractions of 1, in the paper's convention.

    `aauc` and `afpr95` are None where no attack was run, `accuracy` where the model does not classify. `intervals`
    are 95% bootstrap intervals by the name of the metric. `attack` says what the attack did and cost.
    """

    model: str
    inside: str
    outside: str
    eps: float
    images: int
    auc: float
    gauc: float
    fpr95: float
    gfpr95: float
    aauc: float | None = None
    afpr95: float | None = None
    accuracy: float | None = None
    classes: int | None = None  # None for a score that is no confidence, such as a bare discriminator's
    certificate: str = ""  # method of the bound, and the arithmetic that it covers
    attacks: str | None = None
    stop: str | None = None
    limit: int | None = None
    seed: int = 0
    intervals: dict[str, list[float]] = field(default_factory=dict)
    attack: dict[str, Any] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)  # of weights, image sets and the attack's options
    seconds: float = 0.0
    machine: str = ""
    version: str = __version__
    scores: Scores | None = field(default=None, compare=False, repr=False)

    @property
    def identity(self) -> str:
        """16 hex digits of everything that decides the outcome: an evaluation that is there need not be repeated."""
        names = ("model", "inside", "outside", "eps", "certificate", "attacks", "stop", "limit", "seed", "fingerprints")
        return identity(**{name: getattr(self, name) for name in names})

    @property
    def scores_file(self) -> str:
        readable = re.sub(r"[^A-Za-z0-9]+", "-", self.outside).strip("-")[:40]
        return f"{SCORES_FOLDER}/{readable}-{self.eps:g}-{self.identity}.npz"

    def save_scores(self, folder: Path) -> None:
        if self.scores is not None:
            self.scores.save(folder / self.scores_file)

    def to_json(self) -> dict[str, Any]:
        return asdict(replace(self, scores=None)) | {"scores": self.scores_file if self.scores else None}


def identity(**settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Results:
    """Evaluations, in the order in which they were last asked for, and free facts about how they came about."""

    evaluations: tuple[Evaluation, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def __getitem__(self, key: tuple[str, str, float]) -> Evaluation:
        """The last evaluation of (model, outside, eps)."""
        for evaluation in reversed(self.evaluations):
            if (evaluation.model, evaluation.outside, evaluation.eps) == key:
                return evaluation
        raise KeyError(key)

    def find(self, identity: str) -> Evaluation | None:
        return next((evaluation for evaluation in self if evaluation.identity == identity), None)

    def plus(self, *more: Evaluation) -> Results:
        return replace(self, evaluations=(*self.evaluations, *more))

    def ending_with(self, *asked: Evaluation) -> Results:
        """With these at the end, also where they were there before."""
        last = {one.identity for one in asked}
        return replace(self, evaluations=tuple(one for one in self if one.identity not in last)).plus(*asked)

    def save(self, folder: Path | str) -> None:
        """Write `results.json`, and the scores that are not there yet, into the folder."""
        folder = Path(folder)
        for evaluation in self:
            if not (folder / evaluation.scores_file).exists():
                evaluation.save_scores(folder)
        content = {"format": FORMAT, **self.facts, "evaluations": [evaluation.to_json() for evaluation in self]}
        write_text(folder / RESULTS_FILE, json.dumps(content, indent=2) + "\n")

    def report(self, path: Path | str) -> None:
        """Write a report: what kind says the ending, .html, .md, .tex or .csv."""
        from prood.report import write_report

        write_report(self, path)


def read_results(folder: Path | str, *, whole: bool = True) -> Results | None:
    """The results in a folder, None if there are none yet.

    Scores that cannot be read are an error, or with `whole=False` the numbers stand without them.
    """
    folder = Path(folder)
    file = folder / RESULTS_FILE
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] > FORMAT:
            raise ProodError(f"{file} was written by a newer Prood: update with 'pip install -U prood'")
        evaluations = tuple(_evaluation(values, folder, whole) for values in content.pop("evaluations"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProodError(f"{file} is damaged or of another format: remove it and evaluate again") from None
    content.pop("format")
    return Results(evaluations, content)


def _evaluation(values: dict[str, Any], folder: Path, whole: bool) -> Evaluation:
    known = {item.name for item in fields(Evaluation)}
    values = {name: value for name, value in values.items() if name in known}
    file = values.get("scores")
    # A summary such as the quickstart's may have been moved away from its scores: the numbers stand without them.
    try:
        scores = Scores.load(folder / file) if file and (folder / file).is_file() else None
    except ProodError:
        if whole:
            raise
        scores = None
    made = Evaluation(**(values | {"scores": scores}))
    check_kinds(made)
    return made


def check_kinds(made: Evaluation) -> None:
    """A TypeError for values of another kind than they should be: others rely on these."""
    kinds: dict[Any, tuple[str, ...]] = {
        int | float: ("eps", "images", "auc", "gauc", "fpr95", "gfpr95"),
        int | float | None: ("aauc", "afpr95", "accuracy", "classes", "limit", "seconds"),
        str: ("model", "inside", "outside", "certificate"),
        dict: ("intervals", "attack", "fingerprints"),
    }
    for kind, names in kinds.items():
        for name in names:
            if not isinstance(getattr(made, name), kind):
                raise TypeError(f"{name} is of another kind")
    if any(not isinstance(ends, list | tuple) or len(ends) != 2 for ends in made.intervals.values()):
        raise TypeError("an interval has two ends")
