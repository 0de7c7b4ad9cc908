"""How a bound is found: the words, the options, and how much work it may be."""

import math
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch

from prood.bounds.box import Norm
from prood.errors import BadValue

Method = Literal["best", "crown-ibp", "ibp", "alpha-crown", "crown", "bab", "auto"]
Arithmetic = Literal["sound", "plain"]


@dataclass(frozen=True)
class Budget:
    """What the methods behind CROWN-IBP may spend.

    Where `values` and `batch` are None the device decides: a GPU is idle between small kernels, so it gets many images
    at once, and a CPU what its cache and memory bear.
    """

    steps: int = 20  # of descent on the slopes of the final bound
    unit_steps: int = 0  # of descent on the slopes for each hidden unit's own bounds
    all_units: bool = False  # bound every unstable hidden unit anew, not only those whose upper line is in use
    seconds: float = 3.0  # of branch and bound an image
    splits: int | None = None  # of branch and bound an image
    split_steps: int = 5  # of descent for each part
    batch: int | None = None  # parts bounded at once
    values: int | None = None  # numbers that the planes of a chunk may consist of

    def __post_init__(self) -> None:
        least = {"steps": 0, "unit_steps": 0, "seconds": 0, "splits": 0, "split_steps": 0, "batch": 1, "values": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not value >= low:
                raise BadValue(f"the budget's {name} must be at least {low}, not {value}")

    def values_on(self, device: torch.device) -> int:
        if self.values is not None or device.type != "cuda":
            return self.values or 1 << 25
        # The planes of a chunk may take a sixteenth of a GPU's memory.
        return torch.cuda.get_device_properties(device).total_memory // (16 * torch.float64.itemsize)

    def batch_on(self, device: torch.device) -> int:
        return self.batch or (512 if device.type == "cuda" else 16)


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


def checked_radius(eps: float | str, norm: Norm = "linf") -> float:
    """A radius, also as text: 0.01, "8/255". In the maximum norm at most 1, which is the whole range of a pixel."""
    try:
        numerator, _, denominator = str(eps).partition("/")
        radius = float(numerator) / float(denominator or 1)
    except (ValueError, ZeroDivisionError):
        radius = math.nan
    if not (math.isfinite(radius) and radius >= 0):
        shown = repr(eps.strip()) if isinstance(eps, str) else eps
        raise BadValue(f"eps must be a radius, not {shown}: write 0, 0.01 or 8/255, for instance")
    if radius > 1 and norm == "linf":
        advice = f": for grey levels write {radius:g}/255" if radius <= 255 else ""
        raise BadValue(f"eps = {radius:g} is above 1, the whole range of a pixel{advice}")
    return radius
