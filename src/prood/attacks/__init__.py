"""Attacks: one per file, each maximises any score in a ball."""

from prood.attacks.apgd import APGD
from prood.attacks.base import NEVER, TOLERANCE, Attack, Outcome
from prood.attacks.compiled import Compiled
from prood.attacks.ensemble import PRESETS, Ensemble, preset
from prood.attacks.pgd import PGD
from prood.attacks.search import Search
from prood.attacks.square import Square

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
