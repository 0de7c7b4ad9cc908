"""How a network is trained, and how such options are made of a recipe's tables, checked key by key, value by value."""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import nn

from prood.bounds import NegativeLinear
from prood.errors import BadValue, UnknownName, first_line
from prood.methods.declaring import Options, option
from prood.models.mixtures import MixtureRatio

DEEPEST = 20  # more tables or lists within each other than any recipe has

T = TypeVar("T")


@dataclass(frozen=True)
class TrainOptions(Options):
    """Lengths and places in the schedule are in epochs of the in-distribution set."""

    epochs: float = option(10, "length, in epochs of the in-distribution", high=10**9, above=True)  # more is a mistake
    batch: int = option(128, "in-distribution images per step over all processes, and as many outliers", low=1)
    optimizer: Literal["adam", "sgd"] = option("adam", "adam or sgd")
    lr: float = option(1e-3, "learning rate, before warmup, drops and decay", above=True)
    weight_decay: float = option(0.0, "coupled L2 penalty; never on a discriminator's last layer nor on mixtures")
    momentum: float = option(0.9, "momentum of SGD")
    nesterov: bool = option(False, "use Nesterov's momentum in SGD")
    warmup: float = option(0.0, "the learning rate grows linearly from 0 up to this epoch")
    drops: tuple[float, ...] = option((), "epochs at which the learning rate is divided by drop_factor")
    drop_factor: float = option(10.0, "factor that divides the learning rate at each drop", above=True)
    decay_from: float | None = option(None, "from this epoch on the learning rate falls linearly to 0 at the end")
    seed: int = option(0, "seed for initialisation, order, augmentation and noise", high=2**32 - 1)
    precision: Literal["float32", "bfloat16"] = option("float32", "float32, or bfloat16 (mixed, for GPUs)")
    compile: bool = option(False, "compile the step with torch.compile (for GPUs)")
    checkpoint_seconds: float = option(30.0, "minimum seconds between checkpoints")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum >= 1:
            raise BadValue(f"momentum = {self.momentum} must be below 1")
        if self.nesterov and not self.momentum:
            raise BadValue("nesterov needs a momentum above 0")
        if self.decay_from is not None and self.decay_from >= self.epochs:
            change = f"change both, for instance train.decay_from={self.epochs / 2:g}"
            raise BadValue(f"decay_from = {self.decay_from:g} is not before the last epoch, {self.epochs:g}: {change}")

    def learning_rate(self, epoch: float) -> float:
        rate = self.lr * self.drop_factor ** -sum(epoch >= drop for drop in self.drops)
        if epoch < self.warmup:
            rate *= epoch / self.warmup
        if self.decay_from is not None and epoch > self.decay_from:
            rate *= (self.epochs - epoch) / (self.epochs - self.decay_from)
        return rate

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        apart = NegativeLinear, MixtureRatio  # to pull their weights to zero would make −1 of them, or move centres
        undecayed = {id(p) for m in model.modules() if isinstance(m, apart) for p in m.parameters()}
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups = [
            {"params": [p for p in trained if id(p) not in undecayed], "weight_decay": self.weight_decay},
            {"params": [p for p in trained if id(p) in undecayed], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        on_gpu = all(parameter.is_cuda for parameter in trained)
        # On a GPU all weights are updated by one kernel, and the learning rate is a tensor: a captured step reads it.
        lr: Any = torch.tensor(self.lr, device=trained[0].device) if on_gpu else self.lr
        if self.optimizer == "adam":
            return torch.optim.Adam(groups, lr=lr, fused=on_gpu, capturable=on_gpu)
        return torch.optim.SGD(groups, lr=lr, momentum=self.momentum, nesterov=self.nesterov, fused=on_gpu)


def pick(kind: type[T], table: Mapping[str, Any]) -> T:
    """The dataclass with those of the table's values that it has fields for, their types checked."""
    hints = get_type_hints(kind)
    names = [item.name for item in fields(kind) if item.name in table]  # type: ignore[arg-type]
    return kind(**{name: checked(table[name], hints[name], name) for name in names})


def checked(value: Any, hint: Any, name: str) -> Any:
    choices = get_args(hint)
    if get_origin(hint) is Literal:
        if value not in choices:
            raise BadValue(f"{name} = {value!r} is not one of {', '.join(map(str, choices))}")
        return value
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise BadValue(f"{name} must be a list")
        return tuple(checked(item, choices[0], name) for item in value)
    kinds = choices or (hint,)  # a union such as float | None
    if float in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not any(type(value) is kind for kind in kinds):
        raise BadValue(f"{name} = {value!r} must be of type {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def sub(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise BadValue(f"{key!r} in a recipe must be a table")
    return dict(value)


def only(table: Mapping[str, Any], names: Sequence[str], where: str, *types: type[Any]) -> None:
    """Refuse a key that is neither among the names nor a field of the types."""
    known = [*names, *(item.name for kind in types for item in fields(kind))]
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, 1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? It" if near else "it"
            raise UnknownName(f"unknown key {key!r} in {where}: {hint} takes {', '.join(known)}")


def only_usual(value: Any, name: str = "a recipe", depth: int = 0) -> None:
    """Refuse numbers beyond all floats and nesting without end: what reads them fails in its own way."""
    if depth > DEEPEST:
        raise BadValue(f"{name} is nested more than {DEEPEST} deep: no setting is")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise BadValue(f"{name} is a number of more than 300 digits: choose a smaller one")
    listed = [(name, item) for item in value] if isinstance(value, list | tuple) else []
    for key, item in value.items() if isinstance(value, Mapping) else listed:
        only_usual(item, key, depth + 1)


def value_of(text: str) -> Any:
    """A value as TOML writes it; bare words are strings."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise BadValue(f"cannot read the value {text[:20]!r}…: {first_line(error)}") from None
