"""An option of a method, declared once: its default, what it means and which numbers make sense."""

from __future__ import annotations

import math
from dataclasses import field, fields
from typing import Any, TypeVar

from prood.errors import BadValue

T = TypeVar("T")


def option(default: T, help: str, *, low: float = 0.0, high: float = math.inf, above: bool = False) -> T:
    """A dataclass field. `help` is what the recipe's reference says; numbers lie in [low, high], or `above` low.

    Numbers are always finite. Whether there is more to check, `__post_init__` knows.
    """
    value: T = field(default=default, metadata={"help": help, "low": low, "high": high, "above": above})
    return value


def required(help: str) -> Any:
    """A field without a default."""
    return field(metadata={"help": help})


def meanings(kind: type[Any]) -> dict[str, str]:
    """What each option of the dataclass means, by its name."""
    return {item.name: item.metadata.get("help", "") for item in fields(kind)}


def check(options: Any) -> None:
    """Refuse a number outside the range that its option declares: an infinite ramp would train with ε = 0."""
    for item in fields(options):
        value = getattr(options, item.name)
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
