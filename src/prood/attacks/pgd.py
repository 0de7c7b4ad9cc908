"""Projected gradient ascent with momentum and backtracking (Section 4.2 of the paper)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from prood.attacks import draws
from prood.attacks.base import Attack
from prood.attacks.search import Search, column

_START, _STUCK = 0, 1  # streams of random numbers


@dataclass(frozen=True)
class PGD(Attack):
    """x ← P(x + α·m) with m ← 0.9·m + ∇s/mean|∇s|, each m scaled to mean|m| = 1.

    A step that does not raise the score is undone and α halved, otherwise α grows by a tenth. What points out of the
    ball is left out of ∇s: it would take its share of the mean, and the pixels that can still move would hardly do so.
    All starts run together: the point of the ball nearest to grey, `uniform` points of the ball, `gaussian` points
    close to the image, and `blocks` coarse random patterns. A row that has nowhere to climb, on a plateau or at a local
    maximum, or whose step has become tiny, goes on from another such pattern: models that are trained to be flat would
    end its search otherwise.
    """

    name: ClassVar[str] = "pgd"

    steps: int = 200
    momentum: float = 0.9
    step: float = 0.1
    decontrasted: int = 1
    uniform: int = 3
    gaussian: int = 3
    sigma: float = 1e-4
    blocks: int = 0

    @property
    def starts(self) -> int:
        return self.decontrasted + self.uniform + self.gaussian + self.blocks

    @property
    def cost(self) -> int:
        return 2 * self.starts * (self.steps + 1)

    def search(self, search: Search) -> None:
        owner, restart = search.owners(self.starts)
        if not len(owner):
            return
        point = self._start(search, owner, restart)
        value, gradient = search.values_and_gradients(point, owner)
        momentum, step = torch.zeros_like(point), torch.full_like(point[:, :1, :1, :1], self.step)
        for number in range(self.steps):
            keep = search.open[owner]
            if not keep.all():
                rows = (owner, restart, point, value, gradient, momentum, step)
                owner, restart, point, value, gradient, momentum, step = (row[keep] for row in rows)
            if not len(owner):
                return
            uphill = search.uphill(point, gradient, owner)
            ahead = scaled(self.momentum * momentum + scaled(uphill))
            stuck = uphill.flatten(1).eq(0).all(1) | (step.flatten() < 1e-3 * search.eps)
            candidate = search.project(point + step * ahead, owner)
            if stuck.any():
                key = search.keys(owner[stuck], _STUCK, restart[stuck], number)
                candidate[stuck] = search.elsewhere(owner[stuck], key)
            new_value, new_gradient = search.values_and_gradients(candidate, owner)
            rose = new_value > value
            moved = column(rose | stuck)
            point, gradient = torch.where(moved, candidate, point), torch.where(moved, new_gradient, gradient)
            value = torch.where(rose | stuck, new_value, value)
            # The gradient of a step undone is not lost: the mean of those on both sides of a ridge leads along it.
            beyond = scaled(self.momentum * momentum + scaled(search.uphill(point, new_gradient, owner)))
            momentum = torch.where(column(rose), ahead, beyond)
            momentum = torch.where(column(stuck), 0.0, momentum)
            step = torch.where(column(rose), 1.1 * step, 0.5 * step)
            step = torch.where(column(stuck), min(self.step, 2 * search.eps), step)

    def _start(self, search: Search, owner: Tensor, restart: Tensor) -> Tensor:
        """The starts of each kind one after the other, in the order of the restarts."""
        image, key = search.images[owner], search.keys(owner, _START, restart)
        low, high = search.low[owner], search.high[owner]
        kinds = [
            (self.decontrasted, torch.full_like(image, 0.5)),
            (self.uniform, low + (high - low) * draws.uniform_like(key, image)),
            (self.gaussian, image + self.sigma * draws.gaussian_like(key, image)),
            (self.blocks, search.elsewhere(owner, key)),
        ]
        point, first = image, 0
        for count, start in kinds:
            point = torch.where(column((restart >= first) & (restart < first + count)), start, point)
            first += count
        return search.project(point, owner)


def scaled(direction: Tensor) -> Tensor:
    """Each row divided by the mean of its absolute values, so that neither batch nor magnitude matters."""
    # In two steps: the mean of gradients near the smallest float would be 0 although they are not.
    largest = column(direction.abs().flatten(1).amax(1))
    direction = torch.where(largest > 0, direction / largest, 0.0)
    return direction / column(direction.abs().flatten(1).mean(1)).clamp_min(1e-12)
