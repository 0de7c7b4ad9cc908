"""Methods by name: those of the package, of installed packages, and of modules that a user names."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeVar

from prood.errors import AlreadyThere, BadValue, UnknownName, first_line
from prood.methods.base import Method

GROUP = "prood.methods"
"""The entry points of installed packages: `[project.entry-points."prood.methods"]`, a module each."""
_RESERVED = ("classifier", "discriminator-run", "combine", "fuse")

M = TypeVar("M", bound=type[Method])


class Registry(MutableMapping[str, type[Method]]):
    """Declarations by name. Installed packages are asked for theirs when the registry is first read."""

    def __init__(self) -> None:
        self.declared: dict[str, type[Method]] = {}
        self.complete = False

    def __getitem__(self, name: str) -> type[Method]:
        return self._all()[name]

    def __setitem__(self, name: str, kind: type[Method]) -> None:
        self.declared[name] = kind

    def __delitem__(self, name: str) -> None:
        del self.declared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, type[Method]]:
        if not self.complete:
            self.complete = True
            for entry in entry_points(group=GROUP):
                try:
                    import_module(entry.module)
                except Exception as error:
                    package = entry.dist.name if entry.dist else entry.module
                    raise BadValue(f"the methods of {package} cannot be loaded: {first_line(error)}") from None
        return self.declared


METHODS = Registry()
"""Every method by its name: the word of the command line, and of its tables in a recipe."""


def register(kind: M) -> M:
    """Class decorator: this method exists. Everything else about it is derived from its declaration."""
    problem = _problem(kind)
    if problem:
        raise BadValue(f"{kind.__name__} is not a method yet: {problem}")
    other = METHODS.declared.get(kind.name)
    if other is not None and (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
        raise AlreadyThere(f"there is a method {kind.name!r} already, {other.__qualname__}: choose another name")
    METHODS[kind.name] = kind
    return kind


def method(name: str) -> type[Method]:
    """The declaration of this name."""
    if name not in METHODS:
        near = get_close_matches(name, METHODS, 1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}? Else " if near else ""
        raise UnknownName(
            f"unknown method {name!r}: {hint}choose one of {', '.join(METHODS)}, or name the module that has it"
        )
    return METHODS[name]


def _problem(kind: type[Method]) -> str:
    """What the declaration lacks, if anything."""
    lacking = [key for key in ("name", "title", "summary") if not isinstance(getattr(kind, key, None), str)]
    if lacking:
        return f"declare {' and '.join(lacking)} in the class"
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", kind.name) or kind.name in _RESERVED:
        return f"name = {kind.name!r} must be a word in lower case, and not {', '.join(_RESERVED)}"
    if not is_dataclass(kind) or "__dataclass_params__" not in vars(kind):
        return "decorate the class with @dataclass(frozen=True), below @register"
    for item in fields(kind):
        if item.default is MISSING or not item.metadata.get("help"):
            return f"declare {item.name} with its default and its meaning, {item.name}: … = option(1.0, 'what it is')"
    return ""
