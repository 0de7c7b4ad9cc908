"""Several attacks as one, and the presets."""

from dataclasses import dataclass
from typing import ClassVar

from prood.attacks.apgd import APGD
from prood.attacks.base import Attack
from prood.attacks.pgd import PGD
from prood.attacks.search import Search
from prood.attacks.square import Square
from prood.errors import UnknownName


@dataclass(frozen=True)
class Ensemble(Attack):
    """Its members one after the other on the same search: the worst point per image is kept, the settled ones rest."""

    name: ClassVar[str] = "ensemble"

    members: tuple[Attack, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for member in self.members for name in member.names))

    @property
    def cost(self) -> int:
        return sum(member.cost for member in self.members)

    def search(self, search: Search) -> None:
        for member in self.members:
            if search.open.any():
                search.member = member.name
                member.search(search)


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
"""`paper` is that of Section 4.2, `fast` needs at most a twentieth of its passes, `strong` makes 3.6 times as many.
`square` needs no gradients, for a model that has none."""


def preset(name: str) -> Ensemble:
    if name not in PRESETS:
        raise UnknownName(f"there is no attack preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]
