"""How a method is declared: its options, each with a default and a meaning, and its place in the registry; and how
modules that declare some are imported, which runs their code and is therefore done on request only."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prood.errors import AlreadyThere, BadValue, NotFound, ProodError, UnknownName, first_line

if TYPE_CHECKING:
    from prood.methods.base import Method

METHODS: dict[str, type[Method]] = {}
"""Every declared method by its name: the word of the command line, and of its tables in a recipe."""

T = TypeVar("T")
M = TypeVar("M", bound="type[Method]")


def option(default: T, help: str, *, low: float = 0.0, high: float = math.inf, above: bool = False) -> T:
    """A field of a dataclass, for recipes. Numbers are finite, and lie in [low, high], or `above` low."""
    value: T = field(default=default, metadata={"help": help, "low": low, "high": high, "above": above})
    return value


def required(help: str) -> Any:
    return field(metadata={"help": help})


def meanings(kind: type[Any]) -> dict[str, str]:
    """What each option of the dataclass means, by its name."""
    return {item.name: item.metadata["help"] for item in fields(kind)}


@dataclass(frozen=True)
class Options:
    """Refuses a number outside the range that its option declares: an infinite ramp would train with ε = 0."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            for number in value if isinstance(value, tuple) else (value,):
                if "low" not in item.metadata or not isinstance(number, int | float) or isinstance(number, bool):
                    continue
                low, high, above = (item.metadata[key] for key in ("low", "high", "above"))
                if not math.isfinite(number):
                    raise BadValue(f"{item.name} must be a finite number, not {number}")
                if not (low < number <= high if above else low <= number <= high):
                    least = f"above {low:g}" if above else f"at least {low:g}"
                    most = "" if high == math.inf else f" and at most {high:,.12g}"
                    raise BadValue(f"{item.name} must be {least}{most}, not {number}")


def register(kind: M) -> M:
    """Class decorator: this method exists. Everything else about it is derived from its declaration."""
    lacking = [key for key in ("name", "title", "summary") if not isinstance(getattr(kind, key, None), str)]
    if lacking:
        raise BadValue(f"{kind.__name__} is not a method yet: declare {' and '.join(lacking)} in the class")
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", kind.name) or kind.name in ("classifier", "combine", "fuse"):
        raise BadValue(
            f"{kind.name!r} cannot name a method: take another word in lower case, not classifier, combine or fuse"
        )
    if "__dataclass_params__" not in vars(kind):
        raise BadValue(f"{kind.__name__} is not a dataclass: write @dataclass(frozen=True) below @register")
    for item in fields(kind):
        if item.default is MISSING or not item.metadata.get("help"):
            raise BadValue(f"say what {kind.name}'s {item.name} is: {item.name}: … = option(DEFAULT, 'its meaning')")
    other = METHODS.get(kind.name, kind)
    if (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
        raise AlreadyThere(f"there is a method {kind.name!r} already, {other.__qualname__}: choose another name")
    METHODS[kind.name] = kind
    return kind


def method(name: str) -> type[Method]:
    """The declaration of this name."""
    load_installed()
    if name not in METHODS:
        near = get_close_matches(name, METHODS, 1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}? Else " if near else ""
        listed = ", ".join(METHODS)
        raise UnknownName(f"unknown method {name!r}: {hint}choose one of {listed}, or name its module with --module")
    return METHODS[name]


@cache
def load_installed() -> None:
    """Let installed packages declare their methods, once; not while this room is imported, which they import too."""
    for entry in entry_points(group="prood.methods"):  # in a package's pyproject.toml, each a module that declares some
        try:
            import_module(entry.module)
        except Exception as error:
            package = entry.dist.name if entry.dist else entry.module
            raise BadValue(f"the methods of {package} cannot be loaded: {first_line(error)}") from None


def load_modules(names: Sequence[str], folder: Path | None = None) -> None:
    """Import each, once: a file FILE.py, or a module that Python finds by name, else as a file in the folder."""
    for name in names:
        file = Path(folder or ".", name if name.endswith(".py") else name.replace(".", "/") + ".py")
        try:
            if name.endswith(".py"):
                _load_file(file)
                continue
            try:
                import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                    raise  # the module is there, and imports another one that is not
                _load_file(file)
        except ProodError:
            raise
        except Exception as error:
            raise BadValue(f"module {name} cannot be imported: {type(error).__name__}: {first_line(error)}") from None


def _load_file(file: Path) -> None:
    path = str(file.resolve())
    if path in sys.modules:  # a file has no name that others may not have too
        return
    if not file.is_file():
        raise NotFound(f"there is no module {file}: name a FILE.py, or a module that Python finds")
    spec = spec_from_file_location(path, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path] = module_from_spec(spec)  # dataclasses look for their module here
    try:
        spec.loader.exec_module(sys.modules[path])
    except BaseException:
        del sys.modules[path]
        raise
