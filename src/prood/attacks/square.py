"""The Square Attack (Andriushchenko et al., ECCV 2020): random search with squares, no gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from prood.attacks import draws
from prood.attacks.base import Attack
from prood.attacks.search import Search

_STRIPES, _SQUARE, _INSIDE = 0, 1, 2  # streams of random numbers


@dataclass(frozen=True)
class Square(Attack):
    """Starts from vertical stripes of ±ε; then a random square takes ±ε in each channel if the score does not fall.

    The square covers a fraction p of the image, 0.8 at first and halved at fixed parts of the budget. A score that
    stays the same is a step too: on a plateau the search wanders instead of ending. A proposal that changes nothing
    takes the other signs. Once the square is a single pixel, such a proposal, and every other one where the point has
    left the corners, is a step of all pixels, from tiny to the whole ball: maxima inside the ball lie on ridges, which
    no square can follow.
    """

    name: ClassVar[str] = "square"

    queries: int = 5000
    fraction: float = 0.8

    @property
    def cost(self) -> int:
        return self.queries

    def search(self, search: Search) -> None:
        owner, _ = search.owners(1)
        if not len(owner) or not self.queries:
            return
        key = search.keys(owner, _STRIPES)
        point = search.images[owner]
        stripe = torch.arange(point[0, :, 0].numel(), device=point.device).view(1, point.shape[1], 1, point.shape[3])
        up = draws.uniform(key.view(-1, 1, 1, 1), stripe) < 0.5
        point = torch.where(up, search.high[owner], search.low[owner])
        value = search.values(point, owner)
        for query in range(1, self.queries):
            keep = search.open[owner]
            if not keep.all():
                owner, point, value = owner[keep], point[keep], value[keep]
            if not len(owner):
                return
            candidate = self._propose(search, owner, point, query)
            new_value = search.values(candidate, owner)
            taken = new_value >= value
            point = torch.where(taken.view(-1, 1, 1, 1), candidate, point)
            value = torch.where(taken, new_value, value)

    def _propose(self, search: Search, owner: Tensor, point: Tensor, query: int) -> Tensor:
        """`point` with one square replaced."""
        channels, height, width = point.shape[1:]
        side = side_of_square(self.fraction * share(query / self.queries), height, width)
        # One stream a row: two numbers for the place, two for a step inside, and one for the sign of each channel.
        key = search.keys(owner, _SQUARE, query)
        numbers = draws.uniform(key[:, None], torch.arange(4 + channels, device=point.device))
        top = (numbers[:, 0] * (height - side + 1)).long().view(-1, 1, 1, 1)
        left = (numbers[:, 1] * (width - side + 1)).long().view(-1, 1, 1, 1)
        row = torch.arange(height, device=point.device).view(1, 1, -1, 1)
        column = torch.arange(width, device=point.device).view(1, 1, 1, -1)
        square = (row >= top) & (row < top + side) & (column >= left) & (column < left + side)
        low, high = search.low[owner], search.high[owner]
        up = numbers[:, 4:, None, None] < 0.5
        candidate = torch.where(square, torch.where(up, high, low), point)
        same = (candidate == point).flatten(1).all(1)
        if side > 1:
            return torch.where(same.view(-1, 1, 1, 1) & square, torch.where(up, low, high), candidate)
        inside = same | (square & (point > low) & (point < high)).flatten(1).any(1) & (numbers[:, 2] < 0.5)
        if inside.any():
            whole = (high - low)[inside]
            size = 2.0 ** (-12 * numbers[inside, 3].view(-1, 1, 1, 1).to(low.dtype))
            away = 2 * draws.uniform_like(search.keys(owner[inside], _INSIDE, query), whole) - 1
            candidate[inside] = search.project(point[inside] + size * away * whole, owner[inside])
        return candidate


def share(progress: float) -> float:
    """The part of the first fraction p at this part of the budget: the schedule of the paper, for any budget."""
    halvings = (0.001, 0.005, 0.02, 0.1, 0.2, 0.4, 0.6, 0.8)
    return 0.5 ** sum(progress > part for part in halvings)


def side_of_square(fraction: float, height: int, width: int) -> int:
    return min(max(round(math.sqrt(fraction * height * width)), 1), height, width)
