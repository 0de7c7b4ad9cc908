"""The page of a recipe's keys, docs/reference/recipes.md, from the meanings and defaults in the code."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from prood.data import Augment
from prood.methods import METHODS
from prood.methods.declaring import meanings
from prood.training import TrainOptions
from prood.training.explain import AUGMENT, JOINT, NETWORKS
from prood.training.recipe import DataTable, EvaluateTable

HEAD = """# The keys of a recipe

*This page is generated from the code: do not edit it, but run `make docs`.*

A recipe is a TOML file: which data, which networks, and how each method is trained. `prood recipes` lists those that
come with Prood, and `prood recipes NAME` shows one with every key and what it means. Your own is a file that you name
with `--recipe mine.toml`: see [Train on your own images](../guides/own-images.md). A single key is changed on the
command line, `--set train.epochs=10`, and a typing error is answered with the nearest key.

A recipe may begin with `modules = ["my_methods.py"]`, files beside it, or modules that Python finds by name: they
declare [methods of your own](../guides/extend.md#a-method). Reading such a recipe runs their code.

"""
FOR_ONE = "A table `[{table}.METHOD]` replaces keys for one method.\n\n"
AFTER_NETWORKS = """Classifiers are `resnet18`, `resnet50`, `efficientnet-lite0`, `compact`, `small` and
`certified-classifier`. A table `[networks.METHOD]` gives one method a network of its own.

"""


def table(help: Mapping[str, str], kind: type[Any] | None = None, defaults: Mapping[str, str] | None = None) -> str:
    shown = _defaults(kind) if kind is not None else defaults or {}
    rows = "".join(f"| `{key}` | {text} | {shown.get(key, '')} |\n" for key, text in help.items())
    return f"| key | what it means | default |\n|---|---|---|\n{rows}\n"


def _defaults(kind: type[Any]) -> dict[str, str]:
    return {item.name: "required" if item.default is MISSING else _toml(item.default) for item in fields(kind)}


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def page() -> str:
    text = HEAD
    text += "## [data]\n\n" + table(meanings(DataTable), DataTable)
    text += "## [augment]\n\nThe same for both sets of a step, but for `rescaled`.\n\n" + table(AUGMENT, Augment)
    text += FOR_ONE.format(table="augment")
    required = dict.fromkeys(NETWORKS, "required")
    text += "## [networks]\n\n" + table(NETWORKS, defaults=required) + AFTER_NETWORKS
    text += "## [joint]\n\n" + table(JOINT, defaults={"shift": "`0.0`"})
    text += "## [evaluate]\n\n" + table(meanings(EvaluateTable), EvaluateTable) + FOR_ONE.format(table="evaluate")
    text += "## [train.METHOD]\n\nFor every method:\n\n" + table(meanings(TrainOptions), TrainOptions)
    for method, kind in METHODS.items():
        if options := meanings(kind):
            text += f"### [train.{method}]\n\n" + table(options, kind)
    return text.rstrip("\n") + "\n"
