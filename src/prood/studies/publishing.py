"""Publishing: what a run's folder says, as a file that only grows by what was measured anew."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from prood.atomic import write_text
from prood.errors import Damaged, Mismatch, NotFound
from prood.evaluation.results import RESULTS_FILE, Evaluation, Results, read_results
from prood.evaluation.robustness import read_measured
from prood.evaluation.runs import counterpart
from prood.evaluation.words import METRICS, PROVED, VERDICTS, set_name
from prood.models import fingerprint, load
from prood.studies.published import FORMAT, Published, read_json, read_one
from prood.training import Run

_MEASURED = (*METRICS["auc"], *METRICS["fpr"], *METRICS["proved"], "accuracy")
_EVALUATION = ("outside", "eps", "images", *_MEASURED, "certificate", "attacks", "stop", "seed", "intervals")
_EVALUATION += ("seconds", "machine", "fingerprints")
_IDENTITY = ("outside", "eps", "images", "certificate", "attacks", "stop", "seed", "fingerprints")


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
    inside = insides[0] if len(insides) == 1 else set_name(counterpart(about.inside) or "")
    if inside not in insides:
        fault = f"{run} was evaluated on several in-distributions ({', '.join(insides)}), and none is known as its own"
        raise Mismatch(f"{fault}: remove {run / RESULTS_FILE} and evaluate on one of them")
    results = _on(inside, found)
    before = read_one(Path(file)) if Path(file).is_file() else None
    kept = before if before is not None and before.weights == weights else None
    seconds = _rounded(_training_seconds(run))
    evaluations = _merged([*(kept.evaluations if kept else ()), *results])
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


def has_news(run: Path | str, published: Published) -> bool:
    """Whether a run's folder holds evaluations or measurements that were not published of it yet."""
    results = _on(published.inside, read_results(run) or Results())
    merged = _merged(published.evaluations)
    news = any(_adds(_facts(one), merged) for one in results)
    return news or (published.measured is None and bool(_measured(Path(run), results)))


def _on(inside: str, results: Results) -> Results:
    """Those on this in-distribution."""
    return Results(tuple(one for one in results if set_name(one.inside) == inside))


def _key(facts: dict[str, Any]) -> str:
    """What tells two evaluations of the same weights apart."""
    return json.dumps([facts[name] for name in _IDENTITY], sort_keys=True)


def _merged(evaluations: Iterable[Evaluation]) -> dict[str, dict[str, Any]]:
    """The facts of each, the last of alike ones. A provable share is kept where the last has no scores to tell it."""
    merged: dict[str, dict[str, Any]] = {}
    for facts in map(_facts, evaluations):
        before = merged.get(_key(facts), facts)
        merged[_key(facts)] = facts | {name: before[name] for name in PROVED if facts[name] is None}
    return merged


def _adds(facts: dict[str, Any], known: dict[str, dict[str, Any]]) -> bool:
    """Whether this evaluation is not among the known ones, or states a provable share that is missing there."""
    before = known.get(_key(facts))
    return before is None or any(before[name] is None and facts[name] is not None for name in PROVED)


def _measured(run: Path, results: Results) -> dict[str, Any]:
    """What was measured besides the evaluations, if it goes with one of them."""
    found = read_measured(run)
    return {"measured": asdict(found)} if found and results.find(found.of) else {}


def _facts(evaluation: Evaluation) -> dict[str, Any]:
    """What is kept of an evaluation. The radius is a setting, and keeps all its digits."""
    facts = {name: getattr(evaluation, name) for name in _EVALUATION}
    facts |= {name: evaluation.value(name) for name in PROVED}
    facts |= {name: _rounded(value) for name in VERDICTS if (value := getattr(evaluation, name)) is not None}
    rounded = {name: _rounded(facts[name]) for name in (*_MEASURED, "intervals", "seconds")}
    return facts | rounded | {"outside": portable(evaluation.outside)}


def _text(content: dict[str, Any]) -> str:
    """JSON with an evaluation a line: a reader finds one by eye, and a diff names it."""
    lines = [json.dumps(one, allow_nan=False, ensure_ascii=False) for one in content["evaluations"]]
    head = json.dumps(content | {"evaluations": []}, indent=1, allow_nan=False, ensure_ascii=False)
    return head.removesuffix("[]\n}") + "[\n  " + ",\n  ".join(lines) + "\n ]\n}\n"


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
    kept = parts[-2:] if parts[-1].removesuffix(".npz").removesuffix(".csv") in ("train", "test") else parts[-1:]
    return source + colon + "/".join(kept)


def _training_seconds(folder: Path) -> float | None:
    """None for a model that was put together without training."""
    run = Run(folder)
    try:
        last = run.last_metrics()
        return None if last is None else float(last["seconds"])
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{run.metrics} is damaged: its last line does not say how many seconds training took") from None
