"""The whole method on data that arrives inside packages: train, combine, certify and attack, into one folder."""

import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from prood.evaluation import Results, read_results
from prood.studies.known import NEAR, digits
from prood.studies.lab import Lab
from prood.training import Recipe


def quickstart(
    out: Path | str, *, recipe: Recipe | None = None, seed: int | None = None, console: Console | None = None
) -> Results:
    """Train Plain, OE, the discriminator and ProoD, combine ProoD-S, evaluate all, and write results.json.

    What is already in the folder is continued, so that an interrupted quickstart loses nothing.
    """
    began = time.monotonic()
    study = digits(recipe)
    lab = Lab(study, Path(out), seeds=(seed,), home=seed, console=console or Console())
    lab.carry_out([node.name for node in study.nodes])
    results = read_results(lab.folder)
    assert results is not None
    seconds = round(time.monotonic() - began, 1)
    results = replace(results, facts={"shift": lab.recipe.shift, "near": list(NEAR), "seconds": seconds})
    results.save(lab.folder)
    return results
