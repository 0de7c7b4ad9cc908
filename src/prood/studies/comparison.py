"""Train what is compared, evaluate all of it alike, and judge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from prood import processes
from prood.atomic import write_text
from prood.attacks import preset
from prood.bounds import Method
from prood.compare import tables
from prood.compare.entries import Entry, order, select
from prood.compare.properties import RULES, judged
from prood.compare.rows import Row, metrics_of
from prood.errors import ProodError
from prood.evaluation import Evaluation, Results, evaluate_run
from prood.evaluation.measured import measured
from prood.report import results_table
from prood.report.formats import markdown
from prood.training import Recipe, Run, combine, load_recipe, train

FORMAT = 1
JSON_FILE, MARKDOWN_FILE = "compare.json", "compare.md"


@dataclass(frozen=True)
class Comparison:
    """All rows at one radius, judged, with the settings that they were measured by and the results behind them."""

    rows: tuple[Row, ...]
    results: Results
    inside: str
    eps: float
    settings: dict[str, Any]

    def plus(self, row: Row, evaluations: list[Evaluation]) -> Comparison:
        """With one more row, and all of them judged anew."""
        titled = [replace(one, model=row.title) for one in evaluations]
        return replace(
            self, rows=judged((*self.rows, row)), results=self.results.plus(*titled), inside=titled[0].inside
        )

    def save(self, folder: Path) -> None:
        """Write compare.json and compare.md into the folder."""
        content = {
            "format": FORMAT,
            "inside": self.inside,
            "eps": self.eps,
            "settings": self.settings,
            "rules": {rule.key: rule.says for rule in RULES},
            "rows": [row.to_json() for row in self.rows],
        }
        write_text(folder / JSON_FILE, json.dumps(content, indent=2) + "\n")
        text = f"{tables.markdown(self.rows, self.inside, self.eps)}\n{markdown(self.results)}"
        write_text(folder / MARKDOWN_FILE, text)

    def show(self, console: Console) -> None:
        console.print(results_table(self.results))
        console.print()
        console.print(tables.terminal(self.rows, self.inside, self.eps))


def compare(
    out: Path | str,
    *,
    recipe: Recipe | None = None,
    methods: Sequence[str] = (),
    attacks: str = "fast",
    method: Method | None = None,
    inside: str | None = None,
    limit: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    console: Console | None = None,
) -> Comparison:
    """Train and evaluate the methods of the recipe into folders under `out`, print and write what was found.

    `methods` are names of runs such as "plain" or "prood-s", by default all that the recipe has tables for; Plain and
    OE, and the parts of a combination, come along. What is there already is not made again. `attacks`, `limit` and the
    `method` of the certified bounds are those of `prood evaluate`; sets, radii and what is not given are the recipe's.
    The first radius is the one that the property table is about.
    """
    out, console = Path(out), console or Console()
    recipe = recipe or load_recipe("quickstart")
    entries = select(recipe, methods)
    eps, outside = _radii(recipe), recipe.evaluate.outside
    limit = recipe.evaluate.limit if limit is None else limit
    # What is wrong is said now, not after hours.
    if not outside:
        raise ProodError(f"recipe {recipe.name!r} names no test out-distributions: add outside to its table [evaluate]")
    preset(attacks)
    if method is not None and method not in get_args(Method):
        raise ProodError(f"unknown bound method {method!r}: choose one of {', '.join(get_args(Method))}")
    for entry in order(entries):
        _make(entry, recipe, out, seed, device, console)
    settings = {
        "recipe": recipe.name,
        "attacks": attacks,
        "method": method or recipe.evaluate.method,
        "limit": limit,
        "seed": seed,
    }
    comparison = Comparison((), Results(), "", eps[0], settings)
    for entry in entries:
        run = out / entry.run
        options: dict[str, Any] = {"inside": inside, "outside": outside, "eps": eps, "limit": limit, "device": device}
        options["method"] = method or recipe.evaluate_for(entry.method).method
        results = evaluate_run(run, attacks=attacks, console=console, **options)
        evaluations = [one for one in results if one.eps == eps[0]]
        comparison = comparison.plus(_row(entry, run, evaluations, device), evaluations)
    if processes.is_main():
        comparison.save(out)
        comparison.show(console)
        console.print(f"the tables, and the numbers as data: {out / MARKDOWN_FILE}, {out / JSON_FILE}", soft_wrap=True)
    return comparison


def _make(entry: Entry, recipe: Recipe, out: Path, seed: int | None, device: str | None, console: Console) -> None:
    """Train or combine into the entry's folder; what is finished stays as it is."""
    run = out / entry.run
    if entry.method is None:
        if processes.is_main():
            combine(out / entry.needs[0], out / entry.needs[1], run, shift=recipe.shift, resume=True)
        processes.barrier()
        return
    settings = [*entry.settings, *([] if seed is None else [f"train.seed={seed}"])]
    options: dict[str, Any] = {"resume": True, "device": device, "console": console}
    if entry.method == "prood":
        options |= {"discriminator": out / "discriminator", "shift": recipe.shift}
    train(entry.method, recipe.with_settings(entry.method, settings), run, **options)
    if processes.is_main():
        console.print(f"{entry.title:<14} trained in {_seconds(run) or 0:.0f} s → {run}", markup=False, soft_wrap=True)


def _row(entry: Entry, run: Path, evaluations: list[Evaluation], device: str | None) -> Row:
    first = evaluations[0]
    more = measured(run, first, device)
    return Row(
        title=entry.title,
        run=entry.run,
        method=entry.method,
        seconds=_seconds(run),
        accuracy=first.accuracy,
        sets=metrics_of(evaluations),
        far=more.far,
        robustness=more.robustness,
        fingerprint=first.fingerprints["model"],
    )


def _seconds(run: Path) -> float | None:
    metrics = Run(run).last_metrics()
    return None if metrics is None else float(metrics["seconds"])


def _radii(recipe: Recipe) -> list[float]:
    """Those of the recipe's table [evaluate], else the one that its discriminator is trained for."""
    if recipe.evaluate.eps:
        return list(recipe.evaluate.eps)
    if "discriminator" in recipe.train:
        return [float(recipe.resolved("discriminator")["train"]["eps"])]
    raise ProodError(f"recipe {recipe.name!r} names no radius to evaluate at: add eps to its table [evaluate]")
