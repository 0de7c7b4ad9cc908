"""An experiment of the paper as data: what it measures, how it is drawn, and what is said of it."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prood import processes
from prood.atomic import write_text
from prood.errors import Diverged, NotFound, ProodError
from prood.evaluation.evaluator import machine
from prood.studies.published import EXPERIMENTS_FOLDER, read_json
from prood.studies.runner import Runner

Content = dict[str, Any]
FORMAT = 2


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper; `paper` says where it is found there.

    `make` measures with the models of a runner and returns JSON data. `draw` writes its figure, an SVG file, and
    `section` is its Markdown, ours beside the paper's: both know nothing else, so a page says what its files say.
    A table is a view on what is published of models: it is made anew each time, as that costs nothing.
    """

    kind: Literal["table", "figure"]
    name: str
    title: str
    paper: str
    make: Callable[[Runner], Content]
    section: Callable[[Content], str]
    draw: Callable[[Content, Path], None] | None = None

    @property
    def view(self) -> bool:
        return self.kind == "table"

    @property
    def key(self) -> str:
        return f"{self.kind}-{self.name}"

    def file(self, runner: Runner) -> Path:
        return runner.results / runner.name / EXPERIMENTS_FOLDER / f"{self.key}.json"


def perform(experiment: Experiment, runner: Runner, *, again: bool = False) -> Path:
    """Make an experiment and write its JSON file, unless the existing one has the same models and settings."""
    file = experiment.file(runner)
    stored = read_json(file) if file.is_file() else None
    what = f"{experiment.kind} {experiment.name}"
    if stored and not again and not experiment.view and _holds(stored, runner):
        runner.console.print(f"{what}: there already, as {file}", soft_wrap=True, highlight=False)
        return file
    runner.models.clear()
    runner.notes.clear()
    began = time.monotonic()
    content = experiment.make(runner)
    seconds = time.monotonic() - began
    if not runner.models:
        raise NotFound(f"no model of {what} is here or published, with these seeds and attacks: nothing was written")
    document = {
        "format": FORMAT,
        "kind": experiment.kind,
        "name": experiment.name,
        "recipe": runner.name,
        **_settings(runner),
        "command": runner.command,
        "hardware": machine(processes.device(runner.device)),
        "seconds": round(seconds, 1),
        "models": dict(sorted(runner.models.items())),
        "notes": list(dict.fromkeys(runner.notes)),
        "content": content,
    }
    if processes.is_main() and (again or not stored or _says_more(document, stored, experiment)):
        try:
            write_text(file, json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
        except ValueError:
            raise Diverged(f"{what} measured NaN or infinity: nothing was written") from None
    runner.console.print(f"{what}: {seconds:.0f} s, see {file}", soft_wrap=True, highlight=False)
    return file


def perform_all(experiments: Iterable[Experiment], runner: Runner, *, again: bool = False) -> dict[str, str]:
    """Every experiment; one that cannot be made does not stop the others. What went wrong, by the experiment's key."""
    failed: dict[str, str] = {}
    for experiment in experiments:
        heading = f"{experiment.kind} {experiment.name}: {experiment.title}"
        runner.console.print(heading, style="bold", soft_wrap=True, highlight=False, markup=False)
        try:
            perform(experiment, runner, again=again)
        except ProodError as error:
            failed[experiment.key] = str(error)
            runner.console.print(
                f"{experiment.key}: {error}", style="red", soft_wrap=True, highlight=False, markup=False
            )
    return failed


def _holds(stored: dict[str, Any], runner: Runner) -> bool:
    """Whether an experiment's file is about the models that are here now, and made with the runner's settings."""
    if any(stored.get(key) != value for key, value in {**_settings(runner), "format": FORMAT}.items()):
        return False
    models = ((model.rpartition("-"), weights) for model, weights in stored.get("models", {}).items())
    # None: its numbers outlive the model.
    return all(runner.weights(run, int(seed)) in (None, weights) for (run, _, seed), weights in models)


def _settings(runner: Runner) -> dict[str, Any]:
    return {"seeds": list(runner.seeds), "attacks": runner.study.attacks, "attacked": runner.study.attacked}


def _says_more(document: dict[str, Any], stored: dict[str, Any], experiment: Experiment) -> bool:
    """Whether anything was measured anew, apart from what differs from one making to the next.

    A view shows what is published, whatever the settings; models that are not here were looked at by who wrote it.
    """
    loose = {"command", "hardware", "seconds", *(("models", "seeds", "attacks", "attacked") if experiment.view else ())}
    made = json.loads(json.dumps(document))
    known = stored.get("models", {})
    return any(made[key] != stored.get(key) for key in made.keys() - loose) or known | made["models"] != known
