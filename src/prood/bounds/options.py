"""The options of a bound, for what passes them on."""

from __future__ import annotations

from typing import TypedDict

from prood.bounds.balls import Norm
from prood.bounds.certificate import Arithmetic, Method
from prood.bounds.tighter import Budget


class Options(TypedDict, total=False):
    """How `upper_bound` works: see there."""

    method: Method
    arithmetic: Arithmetic
    norm: Norm
    budget: Budget
