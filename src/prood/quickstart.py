"""The whole method on data that arrives inside packages: train, combine, certify, print the paper's kind of table."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from prood import data
from prood.atomic import write_text
from prood.evaluation import RESULTS_FILE, evaluate, results_table
from prood.training import Recipe, combine, load_recipe, train
from prood.version import __version__

INSIDE = "digits:test"
FAR = ("photographs:test", "textures", "text", "faces", "smooth", "uniform")
NEAR = ("left-out",)
"""Test out-distributions, none of them seen in training; the near one is digits too, of classes left out."""


def quickstart(
    out: Path | str, *, recipe: Recipe | None = None, seed: int | None = None, console: Console | None = None
) -> dict[str, Any]:
    """Train Plain, OE, the discriminator and ProoD, combine ProoD-S, evaluate all, write `results.json`.

    What is already in the folder is continued, so that an interrupted quickstart loses nothing.
    """
    out, console = Path(out), console or Console()
    began = time.monotonic()
    recipe = recipe or load_recipe("quickstart")
    if seed is not None:
        for method in recipe.train:
            recipe = recipe.with_settings(method, [f"train.seed={seed}"])

    def trained(method: str, **options: Any) -> nn.Module:
        start = time.monotonic()
        model = train(method, recipe, out / method, resume=True, console=console, **options)
        console.print(f"{method:<14} trained in {time.monotonic() - start:.0f} s → {out / method}")
        return model

    plain, oe = trained("plain"), trained("oe")
    discriminator = trained("discriminator")
    joint = trained("prood", discriminator=out / "discriminator", shift=recipe.shift)
    separate = combine(out / "oe", out / "discriminator", out / "prood-s", shift=recipe.shift, resume=True)

    inside = data.load(INSIDE)
    outside = {name.partition(":")[0]: data.load(name, like=inside) for name in FAR + NEAR}
    eps = recipe.resolved("discriminator")["train"]["eps"]
    models = {"Plain": plain, "OE": oe, "ProoD-Disc": discriminator, "ProoD-S": separate, "ProoD": joint}
    results = {
        "in_distribution": INSIDE,
        "eps": eps,
        "shift": recipe.shift,
        "near": list(NEAR),
        "models": {name: evaluate(model, inside=inside, outside=outside, eps=eps) for name, model in models.items()},
        "seed": recipe.options("prood").seed,
        "seconds": round(time.monotonic() - began, 1),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "version": __version__,
    }
    write_text(out / RESULTS_FILE, json.dumps(results, indent=2) + "\n")
    console.print(results_table(results))
    return results
