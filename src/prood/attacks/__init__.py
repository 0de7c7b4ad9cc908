"""Attacks: one per file, each maximises any score in a ball."""

from prood.attacks.apgd import APGD
from prood.attacks.base import NEVER, TOLERANCE, Attack, Ensemble, Outcome
from prood.attacks.passes import Compiled
from prood.attacks.pgd import PGD
from prood.attacks.search import Search
from prood.attacks.square import Square
from prood.errors import UnknownName

__all__ = [
    "APGD",
    "NEVER",
    "PGD",
    "PRESETS",
    "TOLERANCE",
    "Attack",
    "Compiled",
    "Ensemble",
    "Outcome",
    "Search",
    "Square",
    "preset",
]

PRESETS: dict[str, Ensemble] = {
    "paper": Ensemble((PGD(), APGD(), Square())),
    "fast": Ensemble((PGD(steps=50, uniform=1, gaussian=1), APGD(iterations=60, restarts=2), Square(queries=90))),
    "strong": Ensemble(
        (
            PGD(uniform=14, blocks=14),
            APGD(iterations=1000, restarts=10),
            Square(queries=10_000),
            APGD(iterations=500, restarts=0, refine=3),
        )
    ),
    "square": Ensemble((Square(),)),
}
"""`paper` follows Section 4.2, `fast` needs at most a twentieth of its passes, `strong` makes 3.6 times as many.
`square` needs no gradients, for a model that has none."""


def preset(name: str) -> Ensemble:
    if name not in PRESETS:
        raise UnknownName(f"there is no attack preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
