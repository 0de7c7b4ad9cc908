"""Results as data: one JSON file for each trained model.

It stands alone, and says what a run's folder says (recipe, seconds, weights, evaluations), but no path of the machine.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prood.errors import Damaged, NotFound, Unsupported
from prood.evaluation.results import Evaluation, check_kinds
from prood.evaluation.robustness import Measured, from_json
from prood.evaluation.words import PROVED, set_name
from prood.extras import UPDATE
from prood.reading import json_of, text

FORMAT = 1
SHIFT_FILE, SPEED_FILE, NOTES_FILE = "shift.json", "gpu.json", "notes.md"  # of another form, among the published ones
EXPERIMENTS_FOLDER = "experiments"  # the paper's tables and figures, see prood.report.experiments
ATTACKED = ("aauc", "afpr95")
_ATTACKS = (None, "fast", "paper", "strong")  # from weak to strong; others are of unknown strength


@dataclass(frozen=True)
class Published:
    """One trained model and what was measured of it. `outside` is the training out-distribution."""

    title: str
    inside: str
    outside: str
    command: str
    seed: int | None
    shift: float | None
    hardware: str
    seconds: float | None  # of training
    weights: str
    version: str
    recipe: dict[str, Any]
    evaluations: tuple[Evaluation, ...]
    measured: Measured | None = None
    file: str = field(default="", compare=False)  # below the folder that it was read from

    @property
    def sets(self) -> tuple[str, ...]:
        """The test out-distributions, by their short names."""
        return tuple(dict.fromkeys(set_name(one.outside) for one in self.evaluations))

    @property
    def radii(self) -> tuple[float, ...]:
        return tuple(sorted({float(f"{one.eps:.12g}") for one in self.evaluations}))

    def best(self, metric: str, outside: str, eps: float) -> Evaluation | None:
        """The evaluation that counts for a metric: on the most images, or on the most that the strongest attack saw.

        Among several a guarantee is the tightest proof, and an adversarial value the worst that any attack found.
        """
        found = [one for one in self.at(outside, eps) if one.value(metric) is not None]
        if not found:
            return None
        attacked = metric in ATTACKED
        _, images = max((strength(one) if attacked else 0, one.images) for one in found)
        found = [one for one in found if one.images == images]
        if metric in ("auc", "fpr95", "accuracy"):
            return found[-1]
        choose = max if metric in ("gauc", "afpr95", *PROVED) else min
        return choose(found, key=lambda one: one.value(metric) or 0.0)

    def at(self, outside: str, eps: float) -> list[Evaluation]:
        return [one for one in self.evaluations if set_name(one.outside) == outside and math.isclose(one.eps, eps)]


def method_of(evaluation: Evaluation) -> str:
    """'best' of the certificate 'best, float32'."""
    return evaluation.certificate.partition(",")[0] or "unknown"


def read_published(folder: Path | str) -> list[Published]:
    """Every published file below the folder, by path."""
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}: name the one that holds the published results")
    found = sorted(file for file in folder.rglob("*.json") if file.parent.name != EXPERIMENTS_FOLDER)
    files = [file for file in found if file.name not in (SHIFT_FILE, SPEED_FILE)]
    return [replace(read_one(file), file=file.relative_to(folder).as_posix()) for file in files]


def read_json(file: Path) -> dict[str, Any]:
    try:
        content = json_of(text(file))
    except (OSError, ValueError) as error:
        raise Damaged(f"{file} cannot be read ({' '.join(str(error).split())}): remove it and publish again") from None
    if not isinstance(content, dict):
        raise Damaged(f"{file} is damaged or of another format: remove it and publish again")
    return content


def read_one(file: Path) -> Published:
    """One published file."""
    content = read_json(file)
    try:
        if content.pop("format") > FORMAT:
            raise Unsupported(f"{file} was written by a newer Prood: {UPDATE}")
        title, inside = content["title"], content["inside"]
        evaluations = [Evaluation(model=title, inside=inside, **values) for values in content.pop("evaluations")]
        for one in evaluations:
            check_kinds(one)
        measured = content.pop("measured", None)
        measured = None if measured is None else from_json(measured)
        found = Published(**content, evaluations=tuple(evaluations), measured=measured)
        words = (found.title, found.inside, found.outside, found.command, found.hardware, found.weights)
        if not evaluations or not all(isinstance(word, str) for word in words):
            raise TypeError("an evaluation is missing or is not an object")
        if not all(isinstance(number, int | float | None) for number in (found.seed, found.shift, found.seconds)):
            raise TypeError("a value is not a number")
        return found
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{file} is damaged or of another format: remove it and publish again") from None


def strength(evaluation: Evaluation) -> int:
    """Strength of its attacks: a higher number for a stronger preset."""
    return _ATTACKS.index(evaluation.attacks) if evaluation.attacks in _ATTACKS else 1
