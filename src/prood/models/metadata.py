"""What a file says about its model beside the weights."""

import math
from dataclasses import dataclass, field
from typing import Any

from prood.version import __version__

FORMAT = 1


@dataclass(frozen=True)
class Metadata:
    """Facts about a model. The normalisation stands among the architecture's arguments.

    An image whose confidence is below `threshold` is rejected; `tpr` of the in-distribution images are not, 0.95 say.
    `inside` is the name of the in-distribution, one of the keys of `data`; older files state it as the first of them.
    """

    architecture: dict[str, Any]
    classes: list[str] | None = None
    shift: float | None = None
    eps: float | None = None
    threshold: float | None = None
    tpr: float | None = None
    recipe: dict[str, Any] | None = None
    seed: int | None = None
    inside: str | None = None
    data: dict[str, str] = field(default_factory=dict)  # name of each set used → fingerprint
    version: str = __version__
    format: int = FORMAT

    def __post_init__(self) -> None:
        # Nothing is below NaN: such a threshold would accept everything.
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ValueError(f"a threshold is a finite number, not {self.threshold}")
        names = self.classes
        if names is not None and not (isinstance(names, list | tuple) and all(isinstance(one, str) for one in names)):
            raise ValueError("classes are a list of names")
