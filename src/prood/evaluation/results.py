"""What was measured, as data: one `Evaluation` per model, out-distribution and radius, and the files that hold them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from prood.atomic import locked, write_text
from prood.errors import Damaged, Unsupported
from prood.evaluation.metrics import TPR, rejected
from prood.evaluation.scores import Scores, StoredScores
from prood.evaluation.words import PROVED, VERDICTS
from prood.extras import UPDATE
from prood.reading import content, json_of, text
from prood.version import __version__

RESULTS_FILE = "results.json"
NEW_FILE = "evaluations.jsonl"
"""Evaluations since `RESULTS_FILE` was written, one a line: only ever added to, until that file takes them over."""
FORMAT = 2


@dataclass(frozen=True)
class Evaluation:
    """One model against one out-distribution at one radius. Fractions of 1, in the paper's convention.

    `aauc` and `afpr95` are None where no attack was run, `accuracy` where the model does not classify. `proved90` is
    the share of images that are provably rejected when 90% of the in-distribution is accepted. Older files do not state
    it: ask for `value("proved90")`. At the model's own `threshold`, `accepted` is the share of the in-distribution that
    is accepted, `passed` the share of these images, and `proved` the share of them that is provably rejected.
    `intervals` are 95% bootstrap intervals by the name of the metric. `attack` says what the attack did and cost.
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
    proved95: float | None = None
    proved90: float | None = None
    proved80: float | None = None
    threshold: float | None = None  # of the model as it was when this evaluation was asked for last
    accepted: float | None = None
    passed: float | None = None
    proved: float | None = None
    accuracy: float | None = None
    trained_on: list[str] | None = None  # image sets of the model's training; None where it does not say
    classes: int | None = None  # None for a score other than a confidence, such as a bare discriminator's
    certificate: str = ""  # method of the bound, and the arithmetic that it covers
    attacks: str | None = None
    stop: str | None = None
    limit: int | None = None
    available: int | None = None  # images that the limit chose from, where it left some out
    seed: int = 0
    intervals: dict[str, list[float]] = field(default_factory=dict)
    attack: dict[str, Any] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)  # of weights, image sets and the attack's options
    seconds: float = 0.0
    machine: str = ""
    version: str = __version__
    scores: Scores | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        values = {"AUC": self.auc, "GAUC": self.gauc, "AAUC": self.aauc}
        shown = ", ".join(f"{name} {100 * value:.1f}" for name, value in values.items() if value is not None)
        return f"Evaluation({self.model!r}, {self.inside} against {self.outside}, eps={self.eps:.4g}: {shown})"

    @property
    def identity(self) -> str:
        """16 hex digits of everything that decides the outcome: an evaluation that is there need not be repeated."""
        names = ("model", "inside", "outside", "eps", "certificate", "attacks", "stop", "limit", "seed", "fingerprints")
        return identity(**{name: getattr(self, name) for name in names})

    def value(self, metric: str) -> float | None:
        """A metric by its name. A provable share that an older file does not state comes from the stored scores."""
        stated: float | None = getattr(self, metric)
        if stated is not None or metric not in PROVED:
            return stated
        if PROVED[metric] == TPR:
            return 1 - self.gfpr95
        with suppress(Damaged):  # then it is missing, as without scores
            if self.scores is not None:
                return float(rejected(self.scores.inside, {"": self.scores.certified}, [PROVED[metric]])[""].item())
        return None

    @property
    def scores_file(self) -> str:
        readable = re.sub(r"[^A-Za-z0-9]+", "-", self.outside).strip("-")[:40]
        return f"scores/{readable}-{self.eps:g}-{self.identity}.npz"

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

    def __repr__(self) -> str:
        count = f"{len(self)} evaluation{'' if len(self) == 1 else 's'}"
        return f"Results({count}{''.join(f'{chr(10)}  {one!r}' for one in self)})"

    def _repr_html_(self) -> str:  # in a notebook
        from prood.report.sections import tables_html

        return tables_html(self)

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def __getitem__(self, key: tuple[str, str, float]) -> Evaluation:
        """The last evaluation of (model, outside, eps)."""
        found = [one for one in self if (one.model, one.outside, one.eps) == key]
        if not found:
            raise KeyError(key)
        return found[-1]

    def find(self, identity: str) -> Evaluation | None:
        return next((evaluation for evaluation in self if evaluation.identity == identity), None)

    def plus(self, *more: Evaluation) -> Results:
        return replace(self, evaluations=(*self.evaluations, *more))

    def ending_with(self, *asked: Evaluation) -> Results:
        """With these at the end, each once, also where they were there before."""
        if not asked:
            return self
        last = {one.identity: one for one in asked}
        return replace(self, evaluations=(*(one for one in self if one.identity not in last), *last.values()))

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


def read_results(folder: Path | str) -> Results | None:
    """The results in a folder, None if there are none yet. Their scores are read when they are asked for."""
    folder = Path(folder)
    added = _added(folder)  # first: what another process takes over meanwhile is then in the other file
    file = folder / RESULTS_FILE
    content: dict[str, Any] = {"evaluations": []}
    if file.is_file():
        try:
            content = json_of(text(file))
            _check_format(content.pop("format"), file)
            content["evaluations"] = [_evaluation(values, folder) for values in content["evaluations"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Damaged(f"{file} is damaged or of another format: remove it and evaluate again") from None
    elif not added:
        return None
    return Results(tuple(content.pop("evaluations")), content).ending_with(*added)


def append(folder: Path, made: Evaluation) -> None:
    """Add an evaluation to a folder, where others may write at the same time. From then on a kill does not lose it."""
    made.save_scores(folder)
    line = json.dumps({"format": FORMAT, **made.to_json()})
    with locked(folder / RESULTS_FILE), (folder / NEW_FILE).open("a", encoding="utf-8") as opened:
        opened.write(f"\n{line}\n")  # a line that a process did not write to its end stays apart


def settle(folder: Path, asked: Sequence[Evaluation]) -> None:
    """Write `RESULTS_FILE` with all that is in the folder, and with these at the end, where reports look."""
    with locked(folder / RESULTS_FILE):
        found = read_results(folder) or Results()
        new = folder / NEW_FILE
        if new.exists() or list(found)[-len(asked) :] != list(asked):
            found.ending_with(*asked).save(folder)
            new.unlink(missing_ok=True)


def _added(folder: Path) -> list[Evaluation]:
    """The evaluations of `NEW_FILE`; a line that was not written to its end is of one that is made again."""
    file = folder / NEW_FILE
    try:
        lines = content(file).split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            values = json_of(line)
            _check_format(values.pop("format"), file)
            found.append(_evaluation(values, folder))
    return found


def _check_format(number: int, file: Path) -> None:
    if number > FORMAT:
        raise Unsupported(f"{file} was written by a newer Prood: {UPDATE}")


def _evaluation(values: dict[str, Any], folder: Path) -> Evaluation:
    values = {item.name: values[item.name] for item in fields(Evaluation) if item.name in values}
    file = values.get("scores")
    # A summary such as the quickstart's may have been moved away from its scores: the numbers stand without them.
    scores = StoredScores(folder / file) if file and (folder / file).is_file() else None
    evaluation = Evaluation(**(values | {"scores": scores}))
    check_kinds(evaluation)
    return evaluation


def check_kinds(made: Evaluation) -> None:
    """A TypeError for values of another kind than they should be: others rely on these."""
    kinds: dict[Any, tuple[str, ...]] = {
        int | float: ("eps", "images", "auc", "gauc", "fpr95", "gfpr95"),
        int | float | None: (
            "aauc",
            "afpr95",
            *PROVED,
            *VERDICTS,
            "accuracy",
            "classes",
            "limit",
            "available",
            "seconds",
        ),
        str: ("model", "inside", "outside", "certificate"),
        dict: ("intervals", "attack", "fingerprints"),
        list | None: ("trained_on",),
    }
    wrong = [name for kind, names in kinds.items() for name in names if not isinstance(getattr(made, name), kind)]
    if wrong:
        raise TypeError(f"{wrong[0]} is of another kind")
    if any(not isinstance(ends, list | tuple) or len(ends) != 2 for ends in made.intervals.values()):
        raise TypeError("an interval has two ends")
