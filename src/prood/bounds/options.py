"""How a bound is found: the words and the options, for what passes them on."""

from dataclasses import dataclass
from typing import Literal, TypedDict

from prood.bounds.balls import Norm
from prood.bounds.tighter import Budget

Method = Literal["best", "crown-ibp", "ibp", "alpha-crown", "crown", "bab", "auto"]
Arithmetic = Literal["sound", "plain"]


class Options(TypedDict, total=False):
    """What `upper_bound` takes by keyword: see there."""

    method: Method
    arithmetic: Arithmetic
    norm: Norm
    budget: Budget | None


@dataclass(frozen=True)
class FullOptions:
    """The same with everything that was left out."""

    method: Method = "best"
    arithmetic: Arithmetic = "sound"
    norm: Norm = "linf"
    budget: Budget | None = None
