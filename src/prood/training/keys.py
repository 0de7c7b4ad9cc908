"""What every key of a recipe means, in one place; a test holds that none is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from prood.methods import METHODS
from prood.methods.option import meanings
from prood.training.recipe import Recipe

DATA = {
    "inside": "the in-distribution, an image set by name; without a split, its split 'train'",
    "outside": "the training out-distribution, likewise; photographs of all sizes are fitted to those of inside",
    "limit": "use only so many images of each set, chosen once by a fixed seed; 0 for all",
    "held_back": "so many images of each set, chosen likewise and before the limit, are never trained on; 0 for none",
}

AUGMENT = {
    "pad": "pad by so many pixels and crop at random",
    "flip": "mirror left and right with probability 1/2",
    "autoaugment": "the 25 sub-policies of AutoAugment for CIFAR",
    "cutout": "side of a grey square at a random place; 0 for none",
    "degrees": "turn by up to so many degrees either way",
    "scale": "zoom by up to this fraction either way",
    "border": "what is padded with: zeros, or reflect for the image's reflection",
    "rescaled": "share of the out-distribution that is shown from close up or from afar, as outliers of other kinds",
}

NETWORKS = {
    "classifier": "name of the classifier's architecture (resnet18, resnet50, small …) and its options",
    "discriminator": "size of the discriminator (S, SR, XS …) and its options",
}

JOINT = {"shift": "Δ, added to g in the joint model: larger trusts the classifier more and proves less"}

EVALUATE = {
    "outside": "test out-distributions for 'prood evaluate'; without a split, their split 'test'",
    "eps": "radii in the maximum norm; empty for the one trained for",
    "limit": "images of each out-distribution, chosen by the seed; 0 for all",
    "method": "of the certified bounds: best, ibp, crown-ibp, alpha-crown, crown or bab",
}

TRAIN = {
    "epochs": "length, in epochs of the in-distribution; may be a fraction",
    "batch": "in-distribution images a step over all processes, and as many out-distribution ones",
    "optimizer": "adam or sgd",
    "lr": "learning rate, before warmup, drops and decay",
    "weight_decay": "coupled L2 penalty; never on a discriminator's last layer, nor on the mixtures of CCU",
    "momentum": "of SGD",
    "nesterov": "Nesterov's momentum, of SGD",
    "warmup": "the learning rate grows linearly from 0 up to this epoch",
    "drops": "epochs at which the learning rate is divided by drop_factor",
    "drop_factor": "what the learning rate is divided by at each drop",
    "decay_from": "from this epoch on the learning rate falls linearly to 0 at the end",
    "seed": "of initialisation, order, augmentation and noise",
    "precision": "float32, or bfloat16 (mixed, for GPUs)",
    "compile": "compile the step with torch.compile (for GPUs)",
    "checkpoint_seconds": "at least so long between two checkpoints",
}


def explain_recipe(recipe: Recipe) -> str:
    """A recipe as TOML with every key, defaults included, and its meaning behind it."""
    parts = [f"# {recipe.description}" if recipe.description else f"# {recipe.name}"]
    parts += _table("data", asdict(recipe.data), DATA)
    parts += _table("augment", asdict(recipe.augment), AUGMENT)
    for method, table in recipe.own_augment.items():
        parts += _table(f"augment.{method}", table, AUGMENT)
    own = {method: f"what {method} trains instead of the classifier" for method in recipe.own_networks}
    networks = {"classifier": recipe.classifier, "discriminator": recipe.discriminator, **recipe.own_networks}
    parts += _table("networks", networks, NETWORKS | own)
    parts += _table("joint", {"shift": recipe.shift}, JOINT)
    parts += _table("evaluate", asdict(recipe.evaluate), EVALUATE)
    for method, table in recipe.own_evaluate.items():
        parts += _table(f"evaluate.{method}", table, EVALUATE)
    for method in recipe.train:
        settings = asdict(recipe.options(method)) | asdict(recipe.objective(method))
        parts += _table(f"train.{method}", settings, TRAIN | meanings(METHODS[method]))
    return "\n".join(parts)


def _table(name: str, values: Mapping[str, Any], help: Mapping[str, str]) -> list[str]:
    # TOML has no None: such a key is shown as a comment.
    lines = [f"{key} = {_toml(value)}" if value is not None else f"# {key}" for key, value in values.items()]
    width = min(40, max(map(len, lines)))
    return [
        "",
        f"[{name}]",
        *(f"{line:<{width}}  # {help[key]}" for key, line in zip(values, lines, strict=True)),
    ]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, default=str)  # TOML has dates, which no key takes
