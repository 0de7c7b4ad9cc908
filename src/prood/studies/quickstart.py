"""The whole method on data that arrives inside packages: train, combine, certify, attack, and report like the paper."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from prood import data
from prood.detector import Calibration, Detector
from prood.detector.files import save_calibration
from prood.evaluation import Results, evaluate, read_results
from prood.models import MODEL_FILE, load, save
from prood.report import results_table
from prood.training import Recipe, combine, load_recipe, train

INSIDE = "digits:test"
CALIBRATION = "digits:validation"
"""What the threshold comes from: neither trained nor tested on."""
FAR = ("photographs:test", "materials", "text", "faces", "smooth", "uniform")
NEAR = ("left-out",)
"""Test out-distributions, none of them seen in training; the near one is digits too, of classes left out."""
LIMIT = 100
"""Images of each out-distribution: with all of them the attacks would take longer than the training."""
CERTIFIED_ONLY = (0.1, 0.2)
"""Radii beside the one trained for, to see what is proved there; attacks would double the time."""
REPORT = "report.html"


def quickstart(
    out: Path | str, *, recipe: Recipe | None = None, seed: int | None = None, console: Console | None = None
) -> Results:
    """Train Plain, OE, the discriminator and ProoD, combine ProoD-S, evaluate all, write results.json and report.html.

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
        seconds = time.monotonic() - start
        console.print(f"{method:<14} trained in {seconds:.0f} s → {out / method}", markup=False, soft_wrap=True)
        return model

    plain, oe = trained("plain"), trained("oe")
    discriminator = trained("discriminator")
    joint = trained("prood", discriminator=out / "discriminator", shift=recipe.shift)
    separate = combine(out / "oe", out / "discriminator", out / "prood-s", shift=recipe.shift, resume=True)

    for folder in (out / "prood", out / "prood-s"):
        found = calibrate(folder)
        console.print(f"{folder.name:<14} accepts {found.tpr:.0%} of the digits: confidence ≥ {found.threshold:.4f}")

    inside = data.load(INSIDE)
    outside = {name: data.load(name, like=inside) for name in FAR + NEAR}
    eps = recipe.resolved("discriminator")["train"]["eps"]
    models = {"Plain": plain, "OE": oe, "ProoD-Disc": discriminator, "ProoD-S": separate, "ProoD": joint}
    start = time.monotonic()
    for name, model in models.items():
        for radii, attacks in ((CERTIFIED_ONLY, None), ([eps], "fast")):
            evaluate(
                model,
                inside=inside,
                outside=outside,
                eps=radii,
                attacks=attacks,
                method="alpha-crown",  # cheap on a network this small, and it proves much more
                limit=LIMIT,
                name=name,
                folder=out,
                console=console,
            )
    console.print(f"{'all of them':<14} attacked and certified in {time.monotonic() - start:.0f} s")
    results = read_results(out)
    assert results is not None
    seconds = round(time.monotonic() - began, 1)
    results = replace(results, facts={"shift": recipe.shift, "near": list(NEAR), "seconds": seconds})
    results.save(out)
    results.report(out / REPORT)
    console.print(results_table(Results(tuple(one for one in results if one.eps == eps))))
    console.print(f"curves, histograms and the worst images: {out / REPORT}", soft_wrap=True, highlight=False)
    console.print(f"a page to try it with pictures: prood serve {out / 'prood'}", soft_wrap=True, highlight=False)
    return results


def calibrate(folder: Path) -> Calibration:
    """Give the joint model in this folder its threshold, and put the calibration beside it for p-values."""
    model, about = load(folder)
    detector = Detector(model)
    found = detector.calibrate(data.load(CALIBRATION))
    kept = {one.name for one in fields(about)} - {"architecture", "version", "format"}
    facts = {name: getattr(about, name) for name in kept} | {"threshold": found.threshold, "tpr": found.tpr}
    save(model, folder / MODEL_FILE, **facts)
    save_calibration(detector, folder)
    return found
