"""What a caller may choose about scoring, beyond the model and the radii."""

from dataclasses import dataclass, fields
from typing import Literal

from prood.bounds import Norm
from prood.errors import BadValue

Bound = Literal["best", "ibp", "crown-ibp", "alpha-crown", "crown"]
BOUNDS = ("best", "ibp", "crown-ibp", "alpha-crown", "crown")
NORMS = ("linf", "l2", "l1")


@dataclass(frozen=True)
class Options:
    """How images are scored.

    `image` names the input column that holds the images; None looks for `image`, `bytes` and `path`. `memory` is what
    the numbers of one batch may take, in bytes. `threads` are torch's threads during a call; None leaves them alone.
    Only bounds that repeat may be chosen: `bab` ends by the clock, and `auto` where a verdict is known.
    """

    bound: Bound = "best"
    norm: Norm = "linf"
    image: str | None = None
    memory: int = 2**30
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.bound not in BOUNDS:
            raise BadValue(f"bound is one of {', '.join(BOUNDS)}, not {self.bound!r}: rows must repeat")
        if self.norm not in NORMS:
            raise BadValue(f"norm is one of {', '.join(NORMS)}, not {self.norm!r}")
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in ("memory", "threads") and value is not None and value < 1:
                raise BadValue(f"{one.name} must be at least 1, not {value}")
