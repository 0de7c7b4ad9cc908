"""The Square Attack (Andriushchenko et al., ECCV 2020): random search with squares, no gradients."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from prood.attacks import draws
from prood.attacks.base import Attack
from prood.attacks.search import Search, column

_STRIPES, _SQUARE, _INSIDE = 0, 1, 2  # streams of random numbers
AHEAD = 64
"""Queries whose squares are drawn at once."""


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
        channels, height, width = search.images.shape[1:]
        stripe = torch.arange(channels * width, device=owner.device).view(1, channels, 1, width)
        up = draws.uniform(key.view(-1, 1, 1, 1), stripe) < 0.5
        point = torch.where(up, search.high[owner], search.low[owner])
        value = search.values(point, owner)
        for side, queries in self._stretches(height, width):
            squares = Squares(search, owner, side, queries)
            for query in queries:
                keep = search.open[owner]
                if not keep.all():
                    owner, point, value = owner[keep], point[keep], value[keep]
                    squares.only(keep)
                if not len(owner):
                    return
                candidate = squares.propose(query, point)
                new_value = search.values(candidate, owner)
                taken = new_value >= value
                point = torch.where(column(taken), candidate, point)
                value = torch.where(taken, new_value, value)

    def _stretches(self, height: int, width: int) -> Iterator[tuple[int, list[int]]]:
        """(side, queries) for all queries but the first: as many in a row, up to AHEAD, as have squares of one side."""

        def side(query: int) -> int:
            return side_of_square(self.fraction * share(query / self.queries), height, width)

        for length, group in itertools.groupby(range(1, self.queries), side):
            queries = list(group)
            for begin in range(0, len(queries), AHEAD):
                yield length, queries[begin : begin + AHEAD]


class Squares:
    """The squares of several queries, all of one side, for each row of a batch.

    They are drawn at once: a random number takes a dozen operations, and to launch them on a GPU for every query would
    take longer than to score what is proposed.
    """

    def __init__(self, search: Search, owner: Tensor, side: int, queries: list[int]) -> None:
        self.search, self.side, self.first = search, side, queries[0]
        channels, height, width = search.images.shape[1:]
        device = search.images.device
        query = torch.arange(queries[0], queries[-1] + 1, device=device)
        key = draws.keys(search.keys(owner, _SQUARE)[:, None], query)
        # One stream a query: two numbers for the place, two for a step inside, and one for the sign of each channel.
        numbers = draws.uniform(key[..., None], torch.arange(4 + channels, device=device))
        self.owner, self.numbers, self.up = owner, numbers[..., :4], numbers[..., 4:] < 0.5
        self.low, self.high = search.low[owner], search.high[owner]
        self.down, self.across = (covered(numbers[..., axis], (height, width)[axis], side) for axis in (0, 1))

    def only(self, keep: Tensor) -> None:
        """Go on with these rows."""
        self.owner, self.numbers, self.up = self.owner[keep], self.numbers[keep], self.up[keep]
        self.low, self.high = self.low[keep], self.high[keep]
        self.down, self.across = self.down[keep], self.across[keep]

    def propose(self, query: int, point: Tensor) -> Tensor:
        """`point` with one square replaced."""
        place = query - self.first
        square = self.down[:, place, None, :, None] & self.across[:, place, None, None, :]
        up = self.up[:, place, :, None, None]
        candidate = torch.where(square, torch.where(up, self.high, self.low), point)
        same = (candidate == point).flatten(1).all(1)
        if self.side > 1:
            return torch.where(column(same) & square, torch.where(up, self.low, self.high), candidate)
        numbers = self.numbers[:, place]
        free = square & (point > self.low) & (point < self.high)
        inside = same | free.flatten(1).any(1) & (numbers[:, 2] < 0.5)
        if inside.any():
            owner, whole = self.owner[inside], (self.high - self.low)[inside]
            size = 2.0 ** (-12 * column(numbers[inside, 3]).to(whole.dtype))
            away = 2 * draws.uniform_like(self.search.keys(owner, _INSIDE, query), whole) - 1
            candidate[inside] = self.search.project(point[inside] + size * away * whole, owner)
        return candidate


def covered(numbers: Tensor, length: int, side: int) -> Tensor:
    """Which of `count` pixels in a line lie in a square placed by a number in [0, 1); adds a dimension."""
    first = (numbers * (length - side + 1)).long()[..., None]
    pixel = torch.arange(length, device=numbers.device)
    return (pixel >= first) & (pixel < first + side)


def share(progress: float) -> float:
    """The part of the first fraction p at this part of the budget: the schedule of the paper, for any budget."""
    halvings = (0.001, 0.005, 0.02, 0.1, 0.2, 0.4, 0.6, 0.8)
    return 0.5 ** sum(progress > part for part in halvings)


def side_of_square(fraction: float, height: int, width: int) -> int:
    return min(max(round(math.sqrt(fraction * height * width)), 1), height, width)
