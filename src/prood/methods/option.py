"""An option of a method, declared once: its default, what it means and which numbers make sense."""

from __future__ import annotations

import math
from dataclasses import field, fields
from typing import Any, TypeVar

from prood.errors import ProodError

T = TypeVar("T")


def option(default: T, help: str, *, low: float = 0.0, high: float = math.inf, above: bool = False) -> T:
    """A dataclass field. `help` is what the recipe's reference says; numbers lie in [low, high], or `above` low.

    Numbers are always finite. Whether there is more to check, `__post_init__` knows.
    """
    value: T = field(default=default, metadata={"help": help, "low": low, "high": high, "above": above})
    return value


def meanings(kind: type[Any]) -> dict[str, str]:
    """What each option of the dataclass means, by its name."""
    return {item.name: item.metadata.get("help", "") for item in fields(kind)}


def check(options: Any) -> None:
    """Refuse a number outside the range that its option declares: an infinite ramp would train with ε = 0."""
    for item in fields(options):
        if "low" not in item.metadata:
            continue
        value, low, high = getattr(options, item.name), item.metadata["low"], item.metadata["high"]
        above = item.metadata["above"]
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, int | float) or isinstance(number, bool):
                continue
            fits = low < number <= high if above else low <= number <= high
            if not (fits and math.isfinite(number)):
                raise ProodError(f"{item.name} = {number} must be {_words(low, high, above)}")


def _words(low: float, high: float, above: bool) -> str:
    if high < math.inf and not above:
        return f"between {low:g} and {high:g}"
    least = (
        "finite" if low == -math.inf else f"above {low:g}" if above else f"at least {low:g}" if low else "not negative"
    )
    return f"{least} and at most {high:g}" if high < math.inf else f"{least} and finite"
