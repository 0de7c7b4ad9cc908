"""How a model is evaluated: all that does not belong to the model or to the images, as when a search may end."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from rich.console import Console
from torch import Tensor

from prood.attacks import NEVER, TOLERANCE, Attack, preset
from prood.bounds import Method, Norm
from prood.bounds.options import checked_radius
from prood.errors import BadValue, UnknownName
from prood.evaluation.results import Results

Stop = Literal["auc", "bound", "never"]
LIMIT = 1000
"""Images of each out-distribution where neither a recipe nor the caller says how many."""


@dataclass(frozen=True)
class EvaluateOptions:
    """What `evaluate` and `evaluate_run` take as keywords, as one object.

    `attacks` is a preset ("fast", "paper", "strong"), an attack, or None ("none"). `stop` says when the search for an
    image may end (`goals`). `bound` is the way of bounding, "best" by default. `limit` takes a seeded choice
    of images from each out-distribution; the in-distribution is always used whole. `compile` is for attacks on a
    GPU: the passes of a search are compiled first, which takes half a minute.

    `threshold` is the one by which verdicts are stated, by default the joint model's own. It decides nothing else, nor
    does `trained_on`, the image sets of the training, by default those that the joint model's file names.

    `name` stands for the model in tables. Each evaluation is stored in `folder` as soon as it is made, and those that
    are there are not repeated. A joint model takes bounds of g over the same balls by the same method from
    evaluations of its discriminator in `folder` or in `reuse`, and only the shift is added. Progress is shown on
    `console`.
    """

    attacks: str | Attack | None = None
    stop: Stop = "auc"
    bound: Method | None = None
    limit: int | None = None
    seed: int = 0
    batch: int | None = None
    compile: bool = False
    device: str | torch.device | None = None
    threshold: float | None = None
    trained_on: tuple[str, ...] | None = None
    name: str = "model"
    folder: Path | str | None = None
    reuse: Results | None = None
    console: Console | None = None

    def __post_init__(self) -> None:
        """What is wrong is said now, not after hours."""
        if self.attacks == "none":
            object.__setattr__(self, "attacks", None)
        for word, given, known in (("stopping rule", self.stop, Stop), ("bound", self.bound or "best", Method)):
            if given not in get_args(known):
                raise UnknownName(f"unknown {word} {given!r}: choose one of {', '.join(get_args(known))}")
        if self.batch is not None and self.batch < 1:
            raise BadValue(f"batch must be at least 1, not {self.batch}")
        _ = self.attack

    @property
    def attack(self) -> Attack | None:
        return preset(self.attacks) if isinstance(self.attacks, str) else self.attacks

    @property
    def place(self) -> torch.device:
        return torch.device(self.device or "cpu")

    @property
    def identity(self) -> dict[str, Any]:
        """What of it decides the outcome, as an `Evaluation` keeps it."""
        return {
            "model": self.name,
            "certificate": f"{self.bound or 'best'}, float32",
            "attacks": self.attacks if isinstance(self.attacks, str | None) else repr(self.attacks),
            "stop": self.stop if self.attacks else None,
            "limit": self.limit,
            "seed": self.seed,
        }


def radii_of(eps: float | str | Iterable[float | str]) -> list[float]:
    """One radius or several as a list, each once; as text `"0.01,8/255"`, too."""
    listed = parse_radii(eps) if isinstance(eps, str) else eps if isinstance(eps, Iterable) else [eps]
    radii = [checked_radius(radius) for radius in listed]
    if not radii:
        raise BadValue("eps is empty: give one or several radii, such as 0.01 or [0.01, 8 / 255]")
    return list(dict.fromkeys(radii))


def parse_radii(text: str, norm: Norm = "linf") -> list[float]:
    """`0.01,8/255` as numbers."""
    return [checked_radius(word, norm) for word in text.split(",")]


def goals(stop: Stop, bound: Tensor, inside: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """The score at which the search for each image ends, given its certified bound; float64.

    "bound": within `tolerance` of the bound, where nothing is left to find.

    "auc": at the highest in-distribution score that the bound allows to reach. Between it and the bound there is no
    in-distribution score to overtake, so AAUC and AFPR are exactly those of a search that goes on. A model without a
    certificate is done with an image once that outranks every in-distribution score; an image whose bound lies below
    all of them need not be attacked at all. The attacked score is then what the search had found so far, if anything.

    On a GPU a search rounds otherwise than the score does, and all of this holds up to that.

    "never": only when the attack itself ends.
    """
    bound = bound.double()
    if stop == "never":
        return torch.full_like(bound, NEVER)
    if stop == "bound":
        return bound - tolerance
    ranked = torch.cat([inside.new_tensor([-torch.inf]), inside]).to(bound).sort().values
    return ranked[torch.searchsorted(ranked, bound, right=True) - 1]
