"""A recipe's tables, checked key by key and value by value."""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from prood.errors import BadValue, UnknownName, first_line

DEEPEST = 20  # more tables or lists within each other than any recipe has

T = TypeVar("T")


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
    if type(None) in kinds and value is None:
        return None
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
    if isinstance(value, Mapping):
        for key, item in value.items():
            only_usual(item, key, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            only_usual(item, name, depth + 1)


def value_of(text: str) -> Any:
    """A value as TOML writes it; bare words are strings."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise BadValue(f"cannot read the value {text[:20]!r}…: {first_line(error)}") from None
