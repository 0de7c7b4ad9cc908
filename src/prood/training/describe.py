"""What a run's folder or a model's file says about itself."""

import math
from pathlib import Path
from typing import Any

from prood.errors import NotFound
from prood.models import Discriminator, ProoD, load, model_path
from prood.training.run import Run

_KINDS = {"ProoD": "joint model", "Fusion": "fused joint model", "Discriminator": "discriminator"}


def describe(path: Path | str) -> dict[str, Any]:
    """Facts in the order in which one wants to read them; a run that has not ended says how far it came."""
    path = Path(path)
    run = Run(path) if path.is_dir() else None
    facts: dict[str, Any] = {}
    if run is not None and not run.finished:
        if not run.recipe.is_file():
            raise NotFound(f"{path} is not a run: it holds neither a model nor a recipe")
        facts |= {"status": "not finished: continue it with --resume", "settings": run.settings()}
    else:
        facts |= _model_facts(path)
    if run is not None and (progress := run.last_metrics()):
        facts["training"] = progress
    return facts


def _model_facts(path: Path) -> dict[str, Any]:
    model, about = load(path)
    facts: dict[str, Any] = {
        "file": str(model_path(path)),
        "model": _KINDS.get(type(model).__name__, "classifier"),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "architecture": about.architecture,
        "classes": about.classes,
        "eps": about.eps,
        "shift": about.shift,
    }
    if isinstance(model, ProoD) and about.classes:
        facts["ceiling"] = f"no input whatsoever gets a confidence above {_up(model.ceiling(len(about.classes)))}"
    if isinstance(model, Discriminator):
        facts["ceiling"] = f"g never exceeds {_up(model.ceiling)}"
    facts |= {"seed": about.seed, "data": about.data, "settings": about.recipe, "version": about.version}
    return {key: value for key, value in facts.items() if value is not None}


def _up(bound: float) -> str:
    """Four decimals, rounded so that it stays a bound."""
    return f"{math.ceil(bound * 10**4) / 10**4:.4f}"
