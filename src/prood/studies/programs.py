"""Whole studies: the quickstart, the paper's models on CIFAR, and all methods on the same data, judged."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from prood import processes
from prood.errors import UnknownName, Unsupported
from prood.evaluation import Results, read_results
from prood.studies.known import NEAR, digits, fast
from prood.studies.runner import Runner
from prood.training import Recipe


def quickstart(
    out: Path | str, *, recipe: Recipe | None = None, seed: int | None = None, console: Console | None = None
) -> Results:
    """Train Plain, OE, the discriminator and ProoD, combine ProoD-S, evaluate all, and write results.json.

    What is already in the folder is continued, so that an interrupted quickstart loses nothing.
    """
    began = time.monotonic()
    study = digits(recipe)
    runner = Runner(study, Path(out), seeds=(seed,), home=seed, console=console or Console())
    runner.carry_out([node.name for node in study.nodes])
    seconds = round(time.monotonic() - began, 1)
    facts = {"shift": runner.recipe.shift, "near": list(NEAR), "seconds": seconds}
    results = replace(read_results(runner.folder) or Results(), facts=facts)
    results.save(runner.folder)
    return results


def reproduce(runner: Runner, models: Sequence[str] = (), *, jobs: int = 1) -> list[str]:
    """Train, choose the shifts, certify, attack and publish all models but the baselines, or these; their names.

    Baselines come with the tables that show them. `jobs` tasks are carried out at a time, each in a process of its own.
    """
    names = [node.name for node in runner.study.nodes if node.measures and not node.baseline]
    if unknown := [name for name in models if name not in names]:
        raise UnknownName(f"there is no model {unknown[0]!r} to reproduce: choose among {', '.join(names)}")
    wanted = [name for name in names if not models or name in models]
    if processes.device(runner.device).type != "cuda":
        made = [
            name for name in wanted if all(runner.has(one.name) for one in runner.study.with_parts([name]) if one.gpu)
        ]
        if missing := [name for name in wanted if name not in made]:
            said = f"{', '.join(missing)}: trained on a GPU alone, and there is none"
            if models:
                raise Unsupported(f"{said}: leave out --model {missing[0]}, or name a GPU with --device")
            runner.console.print(f"left out: {said}", markup=False, soft_wrap=True)
        wanted = made
    runner.carry_out(wanted, jobs=jobs, publish=True)
    return wanted


def run_fast(runner: Runner) -> list[Results]:
    """The discriminator and the joint model by shorter schedules, and what is proved about the latter, by seed."""
    runner = replace(runner, study=fast(runner.study))
    joint = runner.study.headline.name
    runner.carry_out([joint])
    return [read_results(runner.place(joint, seed)) or Results() for seed in runner.seeds]
