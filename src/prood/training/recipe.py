"""A recipe: which data, which networks, and how each method is trained; a TOML file, checked key by key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from inspect import signature
from itertools import takewhile
from pathlib import Path
from typing import Any

from prood.bounds import Method as Bound
from prood.data import Augment, Images, open_set
from prood.data.images import Shape
from prood.data.stored import Damage
from prood.errors import BadValue, NotFound, ProodError, UnknownName, Unsupported
from prood.methods import METHODS, Method
from prood.methods import method as declared
from prood.methods.declaring import Options, load_installed, load_modules, option, required
from prood.models import discriminator
from prood.models.confidence import renamed
from prood.models.sizes import check_size
from prood.recipes import find
from prood.training.guard_table import GuardTable
from prood.training.options import TrainOptions, checked, only, only_usual, pick, sub, value_of

_TABLES = ("data", "augment", "networks", "train", "joint", "evaluate", "guard")
_NETWORKS = {"classifier": {"name": "small"}, "discriminator": {"size": "S"}}
_TRAINED = ("plain", "oe", "discriminator", "prood")
"""What a recipe without any table [train.METHOD] trains, by the options' defaults."""


@dataclass(frozen=True)
class DataTable(Options):
    """[data]: what is trained on; a name without a split means the split `train`."""

    inside: str = required("in-distribution: name of an image set; without a split, 'train'")
    outside: str = required("out-distribution for training, named like inside; photographs are fitted to the shape")
    patterns: int = option(0, "made images of patterns and noise to train against beside outside")
    limit: int = option(0, "images to use from each set, chosen by a fixed seed; 0 for all")
    held_back: int = option(0, "images to hold out from each set, chosen before the limit; 0 for none")
    image: tuple[int, ...] = option((), "channels, height and width to which pictures are fitted; empty for their own")
    damaged: Damage = option("refuse", "what to do about unreadable pictures: refuse the set, or skip them")  # noqa: RUF009

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image and (len(self.image) != 3 or self.image[0] not in (1, 3) or min(self.image) < 1):
            raise BadValue(f"data.image = {list(self.image)} must be channels (1 or 3), height and width: [3, 64, 64]")

    @property
    def shape(self) -> Shape | None:
        """What pictures are fitted to; None for their own."""
        return (self.image[0], self.image[1], self.image[2]) if self.image else None

    def open(self, name: str, *, split: str | None = "train", like: Images | None = None) -> Images:
        """A set of this recipe by name: the in-distribution, or with `like` one that is fitted to it."""
        shape = self.shape if like is None else None
        return open_set(name, like=like, shape=shape, split=split, damaged=self.damaged)


@dataclass(frozen=True)
class EvaluateTable(Options):
    """[evaluate]: what `prood evaluate` does with a run of the recipe unless told otherwise; no split means `test`."""

    outside: tuple[str, ...] = option((), "test out-distributions; without a split, their split 'test'")
    eps: tuple[float, ...] = option((), "radii in the maximum norm; empty for the radius of training", high=1)
    limit: int = option(1000, "images from each out-distribution, chosen by the seed; 0 for all")
    bound: Bound = option("best", "way of bounding: best, ibp, crown-ibp, alpha-crown, crown or bab")  # noqa: RUF009


@dataclass(frozen=True)
class Recipe:
    """One recipe: the tables of its TOML file. `networks` are taken apart, and `train` has a table per method."""

    name: str
    data: DataTable
    augment: Augment
    classifier: dict[str, Any]
    discriminator: dict[str, Any]
    train: dict[str, dict[str, Any]]
    own_augment: dict[str, dict[str, Any]] = field(default_factory=dict)  # of a method, where it differs from `augment`
    own_networks: dict[str, dict[str, Any]] = field(default_factory=dict)  # of a method, in place of the classifier
    own_evaluate: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # of a method, where it differs from `evaluate`
    shift: float = 0.0  # Δ of the joint model
    evaluate: EvaluateTable = EvaluateTable()
    guard: GuardTable | None = None  # only of a recipe that `prood guard` or `prood init` wrote
    modules: tuple[str, ...] = ()  # that declare methods of a user's own
    description: str = ""  # the comment at the head of the file

    def __repr__(self) -> str:
        """What it is about; `print(prood.training.explain_recipe(recipe))` shows every key."""
        methods = ", ".join(self.train)
        return f"Recipe({self.name!r}, {self.data.inside} against {self.data.outside}, trains {methods})"

    def augment_for(self, method: str) -> Augment:
        return pick(Augment, asdict(self.augment) | self.own_augment.get(method, {}))

    def evaluate_for(self, method: str | None) -> EvaluateTable:
        """How a run of this method is evaluated; None is a combination of others, which no method trains."""
        return pick(EvaluateTable, asdict(self.evaluate) | self.own_evaluate.get(method or "", {}))

    def options(self, method: str) -> TrainOptions:
        return pick(TrainOptions, self._table(method))

    def method(self, name: str) -> Method:
        return pick(declared(name), self._table(name))

    def network_table(self, method: str) -> str:
        """The table under [networks] that says what this method trains: its own, or the one of its kind."""
        if method in self.own_networks:
            return method
        return "discriminator" if declared(method).kind == "discriminator" else "classifier"

    def network(self, method: str) -> dict[str, Any]:
        table = self.network_table(method)
        return self.own_networks.get(table, self.discriminator if table == "discriminator" else self.classifier)

    def resolved(self, method: str) -> dict[str, Any]:
        """Every setting that a run of this method depends on, defaults included."""
        kind = "discriminator" if declared(method).kind == "discriminator" else "classifier"
        return {
            "recipe": self.name,
            **({"modules": list(self.modules)} if self.modules else {}),
            "method": method,
            **asdict(self.data),
            "augment": asdict(self.augment_for(method)),
            kind: self.network(method),
            "train": asdict(self.options(method)) | asdict(self.method(method)),
            "evaluate": asdict(self.evaluate_for(method)),
        }

    @staticmethod
    def defaults(method: str) -> dict[str, Any]:
        """The options in `resolved` that a recipe need not name, with their defaults."""
        data = {"patterns": 0, "image": (), "damaged": "refuse"}
        return data | {"augment": asdict(Augment()), "train": asdict(TrainOptions()) | asdict(declared(method)())}

    def with_settings(self, method: str, settings: Sequence[str]) -> Recipe:
        """Change values of this method: `["train.epochs=5", "data.outside=npz:mine.npz", "augment.pad=2"]`."""
        document = self._document()
        for setting in settings:
            key, equals, text = setting.partition("=")
            path = key.strip().split(".")
            path = list(renamed(dict.fromkeys(path))) if path[0] == "evaluate" else path
            own = {"augment": self.own_augment, "evaluate": self.own_evaluate}.get(path[0], {}).get(method, {})
            if path[0] == "train" or (len(path) == 2 and path[1] in own):
                path[1:1] = [method]
            if not equals or len(path) < 2:
                raise BadValue(f"cannot read the setting {setting!r}: write it as train.epochs=5")
            table = document
            for part in path[:-1]:
                table = table.setdefault(part, {})
                if not isinstance(table, dict):
                    raise UnknownName(f"there is no setting {key!r} in a recipe")
            table[path[-1]] = value_of(text.strip())
        return parse(document, self.name, self.description)

    def _table(self, method: str) -> dict[str, Any]:
        declared(method)
        if method not in self.train:
            fault = f"recipe {self.name!r} has no table [train.{method}]"
            raise NotFound(f"{fault}: write one, empty for the defaults, or choose one of {', '.join(self.train)}")
        return self.train[method]

    def _document(self) -> dict[str, Any]:
        """What `parse` would make it of again; a copy of all dictionaries, free to be changed."""
        of = asdict(self)
        networks = {key: of[key] for key in ("classifier", "discriminator")} | of["own_networks"]
        document = {key: of[key] for key in ("modules", "data", "train")}
        document |= {key: of[key] | of[f"own_{key}"] for key in ("augment", "evaluate")}
        guard = {} if of["guard"] is None else {"guard": {k: v for k, v in of["guard"].items() if v is not None}}
        return document | {"networks": networks, "joint": {"shift": self.shift}} | guard


def load_recipe(name: str, modules: Sequence[str] = (), *, code: bool = True) -> Recipe:
    """A recipe that comes with Prood, or a TOML file of your own.

    `modules` declare methods of your own: files FILE.py, or modules that Python finds by name. Those that the recipe
    itself names, in its key `modules`, are imported too, from the folder that it lies in: all this runs their code.
    Without `code` a recipe that names some is refused, as the one in a run's folder.
    """
    source = find(name)
    try:
        text = source.read_text(encoding="utf-8-sig")  # some editors put a byte order mark before it
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, a number of thousands of digits, too deep
        raise BadValue(f"recipe {name!r} is not valid TOML: {error}") from None
    load_modules(modules)
    named = checked(document.get("modules", ()), tuple[str, ...], "modules")
    if named and not code:
        raise Unsupported(f"recipe {name!r} names modules, whose code would run ({named[0]}): leave them out")
    load_modules(named, Path(name).parent)
    head = takewhile(lambda line: line.startswith("#"), text.splitlines())
    recipe = parse(document, Path(name).stem, " ".join(line.lstrip("# ").rstrip() for line in head))
    return replace(recipe, modules=tuple(dict.fromkeys((*recipe.modules, *modules))))


def parse(document: Mapping[str, Any], name: str, description: str = "") -> Recipe:
    """Check every table and key of a recipe's document."""
    load_installed()
    only_usual(document)
    only(document, ("modules", *_TABLES), "a recipe")
    data, augment, networks, train, joint, evaluate, guard = (sub(document, key) for key in _TABLES)
    evaluate = renamed(evaluate)
    own_augment, own_evaluate = (
        {key: table.pop(key) for key in METHODS if isinstance(table.get(key), dict)} for table in (augment, evaluate)
    )
    own_evaluate = {key: renamed(table) for key, table in own_evaluate.items()}
    only(networks, ("classifier", "discriminator", *METHODS), "[networks]")
    described = sub(networks, "discriminator")
    if described.get("name", "discriminator") == "discriminator":
        only(described, ("name", *signature(discriminator).parameters), "[networks.discriminator]")
    only(joint, ("shift",), "[joint]")
    only(data, (), "[data]", DataTable)
    only(augment, (), "[augment]", Augment)
    only(evaluate, (), "[evaluate]", EvaluateTable)
    only(guard, (), "[guard]", GuardTable)
    for method, table in own_augment.items():
        only(table, (), f"[augment.{method}]", Augment)
    for method, table in own_evaluate.items():
        only(table, (), f"[evaluate.{method}]", EvaluateTable)
    for key in ("inside", "outside"):
        if key not in data:
            raise BadValue(f'recipe {name!r} does not say which {key} to use: write data.{key} = "an image set"')
    train = train or {method: {} for method in _TRAINED}
    recipe = Recipe(
        name=name,
        data=pick(DataTable, data),
        augment=pick(Augment, augment),
        own_augment=own_augment,
        classifier=_network(networks, "classifier"),
        discriminator=_network(networks, "discriminator"),
        own_networks={key: sub(networks, key) for key in networks if key not in ("classifier", "discriminator")},
        train={method: sub(train, method) for method in train},
        shift=checked(joint.get("shift", 0.0), float, "shift"),
        evaluate=pick(EvaluateTable, evaluate),
        own_evaluate=own_evaluate,
        guard=pick(GuardTable, guard) if "guard" in document else None,
        modules=checked(document.get("modules", ()), tuple[str, ...], "modules"),
        description=description,
    )
    for method in METHODS:
        recipe.augment_for(method), recipe.evaluate_for(method)  # or it is refused
    for key in networks:
        try:
            check_size(({"name": "discriminator"} if key == "discriminator" else {}) | sub(networks, key))
        except ProodError as error:
            raise type(error)(f"[networks.{key}]: {error}") from None
    for method, table in recipe.train.items():
        try:
            settings, options = recipe.method(method), recipe.options(method)
            _check_ramps(settings, options)
        except ProodError as error:  # of any table, whatever method is to be trained
            raise type(error)(f"[train.{method}]: {error}") from None
        only(table, (), f"[train.{method}]", TrainOptions, type(settings))
    return recipe


def _network(networks: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The table of the classifier or the discriminator, with its default."""
    given = sub(networks, part)
    return given if "name" in given else _NETWORKS[part] | given


def _check_ramps(settings: Method, options: TrainOptions) -> None:
    """What grows over more epochs than there are never arrives: ε would silently be a part of what was asked for."""
    for name in (item.name for item in fields(settings) if item.name.endswith("_ramp")):
        epochs = getattr(settings, name)
        if epochs > options.epochs:
            share, what = options.epochs / epochs, name.removesuffix("_ramp")
            end = f"ends at {share:.0%} of its value"
            if isinstance(value := getattr(settings, what, None), float):
                end = f"ends at {value * share:.2g} instead of {value:g}"
            fault = f"{name} = {epochs:g} goes beyond the last epoch, {options.epochs:g}, and so {what} {end}"
            raise BadValue(f"{fault}: change it, for instance train.{name}={options.epochs / 2:g}")
