"""How much work a bound may be."""

from __future__ import annotations

from dataclasses import dataclass

from prood.errors import ProodError


@dataclass(frozen=True)
class Budget:
    """What the methods behind CROWN-IBP may spend. The defaults suit a CPU; on a GPU raise `values` and `batch`."""

    steps: int = 20  # of descent on the slopes of the final bound
    unit_steps: int = 0  # of descent on the slopes for each hidden unit's own bounds
    all_units: bool = False  # bound every unstable hidden unit anew, not only those whose upper line is in use
    seconds: float = 3.0  # of branch and bound an image
    splits: int | None = None  # of branch and bound an image
    split_steps: int = 5  # of descent for each part
    batch: int = 16  # parts bounded at once
    values: int = 1 << 25  # numbers that the planes of a chunk may consist of

    def __post_init__(self) -> None:
        least = {"steps": 0, "unit_steps": 0, "seconds": 0, "splits": 0, "split_steps": 0, "batch": 1, "values": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and not value >= low:
                raise ProodError(f"the budget's {name} must be at least {low}, not {value}")
