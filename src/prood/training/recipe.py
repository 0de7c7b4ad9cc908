"""A recipe: which data, which networks, and how each method is trained; a TOML file, checked key by key."""

from __future__ import annotations

import math
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from prood.bounds import Method
from prood.data import Augment
from prood.errors import ProodError, first_line
from prood.methods import METHODS, Objective
from prood.methods import method as declared
from prood.training.options import TrainOptions

DEEPEST = 20
"""More tables or lists within each other than any recipe has."""


@dataclass(frozen=True)
class Data:
    """What is trained on; a name without a split means the split `train`."""

    inside: str
    outside: str
    limit: int = 0
    held_back: int = 0

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ProodError(f"limit = {self.limit} must be a number of images, or 0 for all")
        if self.held_back < 0:
            raise ProodError(f"held_back = {self.held_back} must be a number of images, or 0 for none")


@dataclass(frozen=True)
class EvaluateOptions:
    """What `prood evaluate` does with a run of the recipe unless told otherwise; no split means `test`."""

    outside: tuple[str, ...] = ()
    eps: tuple[float, ...] = ()
    limit: int = 1000
    method: Method = "best"

    def __post_init__(self) -> None:
        for eps in self.eps:
            if not 0 <= eps < math.inf:
                raise ProodError(f"eps = {eps} must be a radius: a finite number that is not negative")
        if self.limit < 0:
            raise ProodError(f"limit = {self.limit} must be a number of images, or 0 for all")


@dataclass(frozen=True)
class Recipe:
    """One recipe: the tables of its TOML file. `networks` are taken apart, and `train` has a table per method."""

    name: str
    data: Data
    augment: Augment
    classifier: dict[str, Any]
    discriminator: dict[str, Any]
    train: dict[str, dict[str, Any]]
    own_augment: dict[str, dict[str, Any]] = field(default_factory=dict)  # of a method, where it differs from `augment`
    own_networks: dict[str, dict[str, Any]] = field(default_factory=dict)  # of a method, in place of the classifier
    own_evaluate: dict[str, dict[str, Any]] = field(default_factory=dict)  # likewise, where it differs from `evaluate`
    shift: float = 0.0  # Δ of the joint model
    evaluate: EvaluateOptions = EvaluateOptions()
    description: str = ""  # the comment at the head of the file

    def augment_for(self, method: str) -> Augment:
        return _pick(Augment, asdict(self.augment) | self.own_augment.get(method, {}))

    def evaluate_for(self, method: str | None) -> EvaluateOptions:
        """How a run of this method is evaluated; None is a combination of others, which no method trains."""
        return _pick(EvaluateOptions, asdict(self.evaluate) | self.own_evaluate.get(method or "", {}))

    def options(self, method: str) -> TrainOptions:
        return _pick(TrainOptions, self._table(method))

    def objective(self, method: str) -> Objective:
        table = self._table(method)
        kind = declared(method)
        assert issubclass(kind, Objective)
        return _pick(kind, table)

    def network(self, method: str) -> dict[str, Any]:
        """What this method trains: [networks.METHOD] where there is such a table, else the classifier."""
        return self.discriminator if method == "discriminator" else self.own_networks.get(method, self.classifier)

    def resolved(self, method: str) -> dict[str, Any]:
        """Every setting that a run of this method depends on, defaults included."""
        network = "discriminator" if method == "discriminator" else "classifier"
        return {
            "recipe": self.name,
            "method": method,
            **asdict(self.data),
            "augment": asdict(self.augment_for(method)),
            network: self.network(method),
            "train": asdict(self.options(method)) | asdict(self.objective(method)),
            "evaluate": asdict(self.evaluate_for(method)),
        }

    @staticmethod
    def defaults(method: str) -> dict[str, Any]:
        """Of what `resolved` tells, the options that a recipe need not name, with the values that they have then."""
        return {"augment": asdict(Augment()), "train": asdict(TrainOptions()) | asdict(METHODS[method]())}

    def with_settings(self, method: str, settings: Sequence[str]) -> Recipe:
        """Change values of this method: `["train.epochs=5", "data.outside=npz:mine.npz", "augment.pad=2"]`."""
        document = self._document()
        for setting in settings:
            key, equals, text = setting.partition("=")
            path = key.strip().split(".")
            own = {"augment": self.own_augment, "evaluate": self.own_evaluate}.get(path[0], {}).get(method, {})
            if path[0] == "train" or (len(path) == 2 and path[1] in own):
                path[1:1] = [method]
            if not equals or len(path) < 2:
                raise ProodError(f"cannot read the setting {setting!r}: write it as train.epochs=5")
            table = document
            for part in path[:-1]:
                table = table.setdefault(part, {})
                if not isinstance(table, dict):
                    raise ProodError(f"there is no setting {key!r} in a recipe")
            table[path[-1]] = _value(text.strip())
        return parse(document, self.name, self.description)

    def _table(self, method: str) -> dict[str, Any]:
        declared(method)
        if method not in self.train:
            raise ProodError(f"recipe {self.name!r} has no table [train.{method}]")
        return self.train[method]

    def _document(self) -> dict[str, Any]:
        return {
            "data": asdict(self.data),
            "augment": asdict(self.augment) | {method: dict(table) for method, table in self.own_augment.items()},
            "networks": {
                "classifier": dict(self.classifier),
                "discriminator": dict(self.discriminator),
                **{method: dict(spec) for method, spec in self.own_networks.items()},
            },
            "train": {method: dict(table) for method, table in self.train.items()},
            "joint": {"shift": self.shift},
            "evaluate": asdict(self.evaluate) | {method: dict(table) for method, table in self.own_evaluate.items()},
        }


def recipe_names() -> list[str]:
    return sorted(item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml"))


def load_recipe(name: str) -> Recipe:
    """A recipe that comes with Prood, or a TOML file of your own."""
    file = _folder() / f"{name}.toml"
    source = file if file.is_file() else Path(name)
    if not source.is_file():
        raise ProodError(f"no recipe {name!r}: choose one of {', '.join(recipe_names())}, or give a .toml file")
    try:
        text = source.read_text(encoding="utf-8-sig")  # some editors put a byte order mark before it
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number of thousands of digits, too deep
        raise ProodError(f"recipe {name!r} is not valid TOML: {error}") from None
    return parse(document, Path(name).stem, _head(text))


def parse(document: Mapping[str, Any], name: str, description: str = "") -> Recipe:
    """Check every table and key of a recipe's document."""
    _only_usual(document)
    _only(document, ("data", "augment", "networks", "train", "joint", "evaluate"), "a recipe")
    data, networks, train = (_sub(document, key) for key in ("data", "networks", "train"))
    _only(data, (), "[data]", Data)
    _only(networks, ("classifier", *METHODS), "[networks]")
    augment, joint, evaluate = (_sub(document, key) for key in ("augment", "joint", "evaluate"))
    own_augment, own_evaluate = (
        {key: table.pop(key) for key in METHODS if isinstance(table.get(key), dict)} for table in (augment, evaluate)
    )
    for method, table in own_augment.items():
        _only(table, (), f"[augment.{method}]", Augment)
    for method, table in own_evaluate.items():
        _only(table, (), f"[evaluate.{method}]", EvaluateOptions)
    _only(augment, (), "[augment]", Augment)
    _only(joint, ("shift",), "[joint]")
    _only(evaluate, (), "[evaluate]", EvaluateOptions)
    for key, table in (("inside", data), ("outside", data), ("classifier", networks), ("discriminator", networks)):
        if key not in table:
            raise ProodError(f"recipe {name!r} does not say which {key} to use")
    recipe = Recipe(
        name=name,
        data=_pick(Data, data),
        augment=_pick(Augment, augment),
        own_augment=own_augment,
        classifier=_sub(networks, "classifier"),
        discriminator=_sub(networks, "discriminator"),
        own_networks={key: _sub(networks, key) for key in networks if key not in ("classifier", "discriminator")},
        train={method: _sub(train, method) for method in train},
        shift=_checked(joint.get("shift", 0.0), float, "shift"),
        evaluate=_pick(EvaluateOptions, evaluate),
        own_evaluate=own_evaluate,
        description=description,
    )
    for method in own_augment:
        recipe.augment_for(method)
    for method in own_evaluate:
        recipe.evaluate_for(method)
    for method, table in recipe.train.items():
        try:
            objective, _ = recipe.objective(method), recipe.options(method)
        except ProodError as error:  # of any table, whatever method is to be trained
            raise ProodError(f"[train.{method}]: {error}") from None
        _only(table, (), f"[train.{method}]", TrainOptions, type(objective))
    return recipe


def _head(text: str) -> str:
    """The comment that a recipe begins with, as one paragraph."""
    lines = text.splitlines()
    return " ".join(line.lstrip("# ").rstrip() for line in takewhile(lambda line: line.startswith("#"), lines))


def _folder() -> Any:
    return resources.files("prood") / "recipes"


def _sub(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ProodError(f"{key!r} in a recipe must be a table")
    return dict(value)


def _only(table: Mapping[str, Any], names: Sequence[str], where: str, *types: type[Any]) -> None:
    known = [*names, *(item.name for kind in types for item in fields(kind))]
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, 1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? It" if near else "it"
            raise ProodError(f"unknown key {key!r} in {where}: {hint} takes {', '.join(known)}")


def _only_usual(value: Any, name: str = "a recipe", depth: int = 0) -> None:
    """Refuse numbers beyond all floats and nesting without end: what reads them fails in its own way."""
    if depth > DEEPEST:
        raise ProodError(f"{name} is nested more than {DEEPEST} deep: no setting is")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise ProodError(f"{name} is a number of more than 300 digits: choose a smaller one")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _only_usual(item, key, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _only_usual(item, name, depth + 1)


T = TypeVar("T")


def _pick(kind: type[T], table: Mapping[str, Any]) -> T:
    """The dataclass with those of the table's values that it has fields for, their types checked."""
    hints = get_type_hints(kind)
    values = {}
    for item in fields(kind):  # type: ignore[arg-type]
        if item.name in table:
            values[item.name] = _checked(table[item.name], hints[item.name], item.name)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise ProodError(f"{item.name!r} is missing")
    return kind(**values)


def _checked(value: Any, hint: Any, name: str) -> Any:
    choices = get_args(hint)
    if get_origin(hint) is Literal:
        if value not in choices:
            raise ProodError(f"{name} = {value!r} is not one of {', '.join(map(str, choices))}")
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ProodError(f"{name} must be a list")
        return tuple(_checked(item, choices[0], name) for item in value)
    kinds = choices or (hint,)  # a union such as float | None
    if type(None) in kinds and value is None:
        return None
    if float in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not any(type(value) is kind for kind in kinds):
        raise ProodError(f"{name} = {value!r} must be of type {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def _value(text: str) -> Any:
    """A value as TOML writes it; bare words are strings."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise ProodError(f"cannot read the value {text[:20]!r}…: {first_line(error)}") from None
