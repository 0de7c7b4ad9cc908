"""What an attack is, what it returns, and several as one."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from prood.attacks.search import Course, Search, check
from prood.models import Score

TOLERANCE = 1e-3
"""A search ends within this distance of the certified bound, on the scale of the score (a logit)."""

NEVER = math.inf
"""A goal that no score reaches, for a search that never stops early."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The worst point found in each ball, its score, and what the search cost.

    `settled` marks the images whose search ended because it had reached its goal, `found_by` names the attack that
    found the point ("clean" where nothing was better than the image itself). Passes are counted in single images.
    """

    images: Tensor
    scores: Tensor
    clean: Tensor
    settled: Tensor
    found_by: list[str]
    forward: int
    backward: int


class Attack(ABC):
    """Maximises a score in the ℓ∞ ball of radius eps around each image, inside [0, 1]^d.

    An attack is a frozen dataclass of its options with a `search` that hands points to a `Search`.
    """

    name: ClassVar[str]

    @abstractmethod
    def search(self, search: Search) -> None:
        """Look for higher scores for the images that are open."""

    @torch.no_grad()
    def __call__(
        self,
        score: Score,
        images: Tensor,
        eps: float,
        *,
        goal: Tensor | float | None = None,
        tolerance: float = TOLERANCE,
        seed: int = 0,
        numbers: Sequence[int] | Tensor | None = None,
        **course: Unpack[Course],
    ) -> Outcome:
        """The search for an image ends where its score reaches `goal`, a number for each image or one for all.

        Without a goal it is the certified bound less `tolerance`: nothing is left to find there (certified stopping).
        `goal=math.inf` never stops early. `numbers` name the images (0, 1, … by default): with the same seed and number
        an image sees the same random draws in any batch. `rows` limits how many points are scored at once, and `watch`
        is told from time to time how many passes were made, of at most `passes` for each image.
        """
        check(images, eps)
        if goal is None:
            goal = score.upper_bound(images, eps) - tolerance
        goals = torch.as_tensor(goal, dtype=torch.float64)
        goals = goals if goals.ndim else goals.expand(len(images))
        search = Search(score, images, eps, goal=goals, seed=seed, numbers=numbers, **course)
        search.member = self.name
        if search.open.any():
            self.search(search)
        search.check_numbers()
        if images.is_cuda:  # where the search may have rounded otherwise than the score itself does
            search.score_again()
        found = (search.best, search.value, search.clean, ~search.open, search.found_by)
        return Outcome(*found, search.forward, search.backward)

    @property
    def names(self) -> tuple[str, ...]:
        """Who can have found a point, besides "clean"."""
        return (self.name,)

    @property
    def passes(self) -> int:
        """Forward and backward passes per image of a search that is never settled, the first look included."""
        return 1 + self.cost

    @property
    @abstractmethod
    def cost(self) -> int:
        """Forward and backward passes per image that `search` makes at most."""


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
