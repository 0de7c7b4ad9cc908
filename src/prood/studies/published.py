"""Results as data: one JSON file for each trained model.

It stands alone, and says what a run's folder says (recipe, seconds, weights, evaluations), but no path of the machine.
"""

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from prood.atomic import write_text
from prood.errors import Damaged, Mismatch, NotFound, Unsupported
from prood.evaluation.measured import Measured, from_json, read_measured
from prood.evaluation.results import RESULTS_FILE, Evaluation, Results, check_kinds, read_results
from prood.evaluation.runs import own_test_set
from prood.evaluation.words import METRICS, set_name
from prood.models import fingerprint, load
from prood.training import Run

FORMAT = 1
SHIFT_FILE, SPEED_FILE, NOTES_FILE = "shift.json", "gpu.json", "notes.md"  # of another form, among the published ones
EXPERIMENTS_FOLDER = "experiments"  # likewise: tables and figures of the paper, see prood.report.experiments
_MEASURED = (*METRICS["auc"], *METRICS["fpr"], "accuracy")
_EVALUATION = ("outside", "eps", "images", *_MEASURED, "certificate", "attacks", "stop", "seed", "intervals")
_EVALUATION += ("seconds", "machine", "fingerprints")
_IDENTITY = ("outside", "eps", "images", "certificate", "attacks", "stop", "seed", "fingerprints")
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
        found = [one for one in self.at(outside, eps) if getattr(one, metric) is not None]
        if not found:
            return None
        attacked = metric in ATTACKED
        _, images = max((strength(one) if attacked else 0, one.images) for one in found)
        found = [one for one in found if one.images == images]
        if metric in ("auc", "fpr95", "accuracy"):
            return found[-1]
        choose = max if metric in ("gauc", "afpr95") else min
        return choose(found, key=lambda one: float(getattr(one, metric)))

    def at(self, outside: str, eps: float) -> list[Evaluation]:
        return [one for one in self.evaluations if set_name(one.outside) == outside and math.isclose(one.eps, eps)]


def method_of(evaluation: Evaluation) -> str:
    """'best' of the certificate 'best, float32'."""
    return evaluation.certificate.partition(",")[0] or "unknown"


def publish(
    run: Path | str,
    file: Path | str,
    *,
    command: str,
    title: str,
    outside: str,
    hardware: str | None = None,
    seed: int | None = None,
) -> dict[str, Any]:
    """Write what a run's folder says into one file, and return its content.

    What the file has of the same weights before, and the folder has not, stays in it: it may be of another machine.
    Of evaluations on several in-distributions, those on the test set of its own are published.
    `outside` is the training out-distribution. `hardware` is what it was trained on; if it is not given, where it was
    evaluated. `seed` is for a model that has none of its own, such as a combined one.
    """
    run = Path(run)
    model, about = load(run)
    weights = fingerprint(model)
    found = read_results(run)
    if not found:
        raise NotFound(f"{run} was not evaluated yet: run 'prood evaluate {run}' first")
    if any(one.fingerprints.get("model") != weights for one in found):
        raise Mismatch(f"{run / RESULTS_FILE} holds evaluations of other weights: remove it and evaluate again")
    insides = sorted({set_name(one.inside) for one in found})
    inside = insides[0] if len(insides) == 1 else set_name(own_test_set(about) or "")
    if inside not in insides:
        fault = f"{run} was evaluated on several in-distributions ({', '.join(insides)}), and none is known as its own"
        raise Mismatch(f"{fault}: remove {run / RESULTS_FILE} and evaluate on one of them")
    results = _on(inside, found)
    before = read_one(Path(file)) if Path(file).is_file() else None
    kept = before if before is not None and before.weights == weights else None
    seconds = _rounded(_training_seconds(run))
    evaluations = {_key(one): one for one in map(_facts, [*(kept.evaluations if kept else ()), *results])}
    content = {
        "format": FORMAT,
        "title": title,
        "inside": inside,
        "outside": outside,
        "command": command,
        "seed": about.seed if seed is None else seed,
        "shift": _rounded(about.shift),
        "hardware": hardware or (kept.hardware if kept else "; ".join(dict.fromkeys(one.machine for one in results))),
        "seconds": kept.seconds if kept and seconds is None else seconds,
        "weights": weights,
        "version": about.version,
        "recipe": portable(read_json(run / "recipe.json")),
        **({"measured": asdict(kept.measured)} if kept and kept.measured else {}),
        **_measured(run, results),
        "evaluations": list(evaluations.values()),
    }
    write_text(Path(file), _text(content))
    return content


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
        content = json.loads(file.read_text(encoding="utf-8"))
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
            raise Unsupported(f"{file} was written by a newer Prood: update with 'pip install -U prood'")
        title, inside = content["title"], content["inside"]
        made = [Evaluation(model=title, inside=inside, **values) for values in content.pop("evaluations")]
        for one in made:
            check_kinds(one)
        measured = content.pop("measured", None)
        measured = None if measured is None else from_json(measured)
        found = Published(**content, evaluations=tuple(made), measured=measured)
        words = (found.title, found.inside, found.outside, found.command, found.hardware, found.weights)
        if not made or not all(isinstance(word, str) for word in words):
            raise TypeError("no evaluations, or a word that is none")
        if not all(isinstance(number, int | float | None) for number in (found.seed, found.shift, found.seconds)):
            raise TypeError("a number that is none")
        return found
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Damaged(f"{file} is damaged or of another format: remove it and publish again") from None


def has_news(run: Path | str, published: Published) -> bool:
    """Whether a run's folder holds evaluations or measurements that were not published of it yet."""
    results = _on(published.inside, read_results(run) or Results())
    known = {_key(_facts(one)) for one in published.evaluations}
    news = any(_key(_facts(one)) not in known for one in results)
    return news or (published.measured is None and bool(_measured(Path(run), results)))


def _on(inside: str, results: Results) -> Results:
    """Those on this in-distribution."""
    return Results(tuple(one for one in results if set_name(one.inside) == inside))


def _key(facts: dict[str, Any]) -> str:
    """What tells two evaluations of the same weights apart."""
    return json.dumps([facts[name] for name in _IDENTITY], sort_keys=True)


def _measured(run: Path, results: Results) -> dict[str, Any]:
    """What was measured besides the evaluations, if it goes with one of them."""
    found = read_measured(run)
    return {"measured": asdict(found)} if found and results.find(found.of) else {}


def _facts(evaluation: Evaluation) -> dict[str, Any]:
    """What is kept of an evaluation. The radius is a setting, and keeps all its digits."""
    facts = {name: getattr(evaluation, name) for name in _EVALUATION}
    rounded = {name: _rounded(facts[name]) for name in (*_MEASURED, "intervals", "seconds")}
    return facts | rounded | {"outside": portable(evaluation.outside)}


def _text(content: dict[str, Any]) -> str:
    """JSON with an evaluation a line: a reader finds one by eye, and a diff names it."""
    lines = [json.dumps(one, allow_nan=False, ensure_ascii=False) for one in content["evaluations"]]
    head = json.dumps(content | {"evaluations": []}, indent=1, allow_nan=False, ensure_ascii=False)
    return head.removesuffix("[]\n}") + "[\n  " + ",\n  ".join(lines) + "\n ]\n}\n"


def strength(evaluation: Evaluation) -> int:
    """Of its attacks: a higher number for a stronger preset."""
    return _ATTACKS.index(evaluation.attacks) if evaluation.attacks in _ATTACKS else 1


def _rounded(value: Any) -> Any:
    """Six significant digits, more than a thousand images can tell apart; JSON has no infinities."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def portable(value: Any, key: str = "") -> Any:
    """Without the folders of one machine, and without infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {portable(name): portable(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [portable(item, key) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, str):
        return value
    source, colon, rest = value.rpartition(":")
    if "/" not in rest or not (colon or key.endswith("_run") or rest.startswith(("/", "~"))):
        return value
    parts = PurePosixPath(rest).parts
    kept = parts[-2:] if parts[-1].removesuffix(".npz") in ("train", "test") else parts[-1:]
    return source + colon + "/".join(kept)


def _training_seconds(folder: Path) -> float | None:
    """None for a model that was put together without training."""
    run = Run(folder)
    try:
        last = run.last_metrics()
        return None if last is None else float(last["seconds"])
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{run.metrics} is damaged: its last line does not say how many seconds training took") from None
