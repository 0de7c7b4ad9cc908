"""A recipe with what every key means, and what a run's folder or a model's file says about itself."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prood.errors import NotFound
from prood.methods import METHODS
from prood.methods.declaring import meanings
from prood.models import Discriminator, Gated, Metadata, ProoD, load, model_path
from prood.models.constancy import constant
from prood.training.guard_table import GuardTable
from prood.training.options import TrainOptions
from prood.training.recipe import DataTable, EvaluateTable, Recipe
from prood.training.run import Run

AUGMENT = {
    "pad": "pixels to pad by before a random crop",
    "flip": "mirror left and right with probability 1/2",
    "autoaugment": "the 25 sub-policies of AutoAugment for CIFAR",
    "cutout": "side of a grey square at a random place; 0 for none",
    "degrees": "maximum degrees to turn either way",
    "scale": "zoom by up to this fraction either way",
    "border": "what is padded with: zeros, or reflect for the image's reflection",
    "rescaled": "share of the out-distribution that is shown from close up or from afar, as outliers of other kinds",
    "crop": "side of a random square to train on, cut out of larger images; 0 for the whole image",
    "resized": "the square has 1 − resized to 1 of the image's shorter side, and is resized to the crop's pixels",
    "colour": "brightness, contrast and saturation are each multiplied by 1 − colour to 1 + colour",
}

NETWORKS = {
    "classifier": "name of the classifier's architecture (resnet18, resnet50, small …) and its options",
    "discriminator": "size of the discriminator (S, SR, XS …) and its options",
}

JOINT = {"shift": "Δ, added to g in the joint model: larger trusts the classifier more and proves less"}


def explain_recipe(recipe: Recipe) -> str:
    """A recipe as TOML with every key, defaults included, and its meaning behind it."""
    parts = [f"# {recipe.description}" if recipe.description else f"# {recipe.name}"]
    if recipe.modules:
        parts += ["", f"modules = {_toml(recipe.modules)}  # declare methods of your own; reading the recipe runs them"]
    parts += _table("data", asdict(recipe.data), meanings(DataTable))
    parts += _table("augment", asdict(recipe.augment), AUGMENT)
    for method, table in recipe.own_augment.items():
        parts += _table(f"augment.{method}", table, AUGMENT)
    own = {method: f"what {method} trains instead of the classifier" for method in recipe.own_networks}
    networks = {"classifier": recipe.classifier, "discriminator": recipe.discriminator, **recipe.own_networks}
    parts += _table("networks", networks, NETWORKS | own)
    parts += _table("joint", {"shift": recipe.shift}, JOINT)
    parts += _table("evaluate", asdict(recipe.evaluate), meanings(EvaluateTable))
    for method, table in recipe.own_evaluate.items():
        parts += _table(f"evaluate.{method}", table, meanings(EvaluateTable))
    if recipe.guard is not None:
        parts += _table("guard", asdict(recipe.guard), meanings(GuardTable))
    for method in recipe.train:
        settings = asdict(recipe.options(method)) | asdict(recipe.method(method))
        parts += _table(f"train.{method}", settings, meanings(TrainOptions) | meanings(METHODS[method]))
    return "\n".join(parts)


def _table(name: str, values: Mapping[str, Any], help: Mapping[str, str]) -> list[str]:
    # TOML has no None: such a key is shown as a comment.
    lines = [f"{key} = {_toml(value)}" if value is not None else f"# {key}" for key, value in values.items()]
    width = min(40, max(map(len, lines)))
    return ["", f"[{name}]", *(f"{line:<{width}}  # {help[key]}" for key, line in zip(values, lines, strict=True))]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, default=str)  # TOML has dates, which no key takes


def describe(path: Path | str) -> dict[str, Any]:
    """Facts in the order in which one wants to read them; a run that has not ended says how far it came."""
    run = Run(path)
    if run.folder.is_dir() and not run.finished:
        if not run.recipe.is_file():
            raise NotFound(f"{path} is not a run: it holds neither a model nor a recipe")
        facts = {"status": "not finished: continue it with --resume", "settings": run.settings()}
    else:
        facts = _model_facts(run.folder)
    progress = run.last_metrics()
    return facts | {"training": progress} if progress else facts


def _model_facts(path: Path) -> dict[str, Any]:
    model, about = load(path)
    kinds = {
        "ProoD": "joint model",
        "Fusion": "fused joint model",
        "Gated": "gated joint model",
        "Committee": "committee of discriminators",
        "Discriminator": "discriminator",
    }
    facts: dict[str, Any] = {"file": str(model_path(path)), "model": kinds.get(type(model).__name__, "classifier")}
    facts |= {"parameters": sum(part.numel() for part in model.parameters()), "architecture": about.architecture}
    facts |= {"classes": about.classes, "eps": about.eps, "shift": about.shift}
    if isinstance(model, ProoD) and about.classes:
        facts["ceiling"] = f"no input whatsoever gets a confidence above {_up(model.ceiling(len(about.classes)))}"
    if isinstance(model, Gated):
        facts["gate"] = _gate(model, about)
    if isinstance(model, Discriminator):
        facts["ceiling"] = f"g never exceeds {_up(model.ceiling)}"
    facts["warning"] = constant(model)
    facts |= {"seed": about.seed, "data": about.data, "settings": about.recipe, "version": about.version}
    return {key: value for key, value in facts.items() if value is not None}


def _gate(model: Gated, about: Metadata) -> str:
    """What the gate of g does at the file's threshold, and what it may spend, where the file says so."""
    least = "a threshold of its own"
    if about.threshold is not None and about.classes:
        least = f"{model.p_in_at(about.threshold, len(about.classes)):.4g}"
    spent = "" if about.provable is None else f"; it may spend {about.provable:.0%} of the false rejections"
    return f"g alone rejects an image whose p_in is below {least} (a gate of {len(model.knots)} knots){spent}"


def _up(bound: float) -> str:
    """Four decimals, rounded so that it stays a bound."""
    return f"{math.ceil(bound * 10**4) / 10**4:.4f}"
