"""Auto-PGD (Croce and Hein, Reliable evaluation of adversarial robustness, ICML 2020), on the score itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from prood.attacks import draws
from prood.attacks.base import Attack
from prood.attacks.search import Search

_START, _STUCK = 0, 1  # streams of random numbers


@dataclass(frozen=True)
class APGD(Attack):
    """z = P(x + η·sign ∇s),  x ← P(x + 0.75·(z − x) + 0.25·(x − x₋₁)), with η = 2ε at first.

    At checkpoints that grow denser, a row halves η and goes back to its best point if the score rose in fewer than
    75% of the steps since the last one, or if neither η nor the best score has changed. Restarts run together, from
    uniform points of the ball; `refine` more go on from the best point that the search has found so far. A row that has
    nowhere to climb, on a plateau or at a local maximum, goes back to its best point with half the step, and if that
    is where it is, starts anew from a random corner.
    """

    name: ClassVar[str] = "apgd"

    iterations: int = 500
    restarts: int = 5
    refine: int = 0

    @property
    def cost(self) -> int:
        return 2 * (self.restarts + self.refine) * (self.iterations + 1)

    def search(self, search: Search) -> None:
        owner, restart = search.owners(self.restarts + self.refine)
        if not len(owner):
            return
        low, high = search.low[owner], search.high[owner]
        start = low + (high - low) * draws.uniform_like(search.keys(owner, _START, restart), low)
        best = search.best[owner]
        # The first of those that refine starts from the best point itself, the others ever farther away from it.
        away = ((restart - self.restarts) / max(2 * self.refine, 1)).to(low.dtype).view(-1, 1, 1, 1)
        point = torch.where(away < 0, start, best + away * (start - best))
        point = search.project(point, owner)  # rounding of the sums above
        value, gradient = search.values_and_gradients(point, owner)
        before, best, best_value, best_gradient = point, point, value, gradient
        step = torch.full_like(value, 2 * search.eps, dtype=point.dtype)
        rises = torch.zeros_like(value)
        last_step, last_best = step, value
        points_of_check = checkpoints(self.iterations)
        last_check = 0
        for number in range(self.iterations):
            keep = search.open[owner]
            if not keep.all():
                rows = (owner, restart, point, value, gradient, before, best, best_value, best_gradient)
                owner, restart, point, value, gradient, before, best, best_value, best_gradient = (
                    row[keep] for row in rows
                )
                step, rises, last_step, last_best = (row[keep] for row in (step, rises, last_step, last_best))
            if not len(owner):
                return
            lost = self._stuck(search, point, gradient, owner) & (value < best_value)
            step = torch.where(lost, step / 2, step)
            column = lost.view(-1, 1, 1, 1)
            point, gradient = torch.where(column, best, point), torch.where(column, best_gradient, gradient)
            before, value = torch.where(column, best, before), torch.where(lost, best_value, value)
            stuck = self._stuck(search, point, gradient, owner)
            towards = search.project(point + step.view(-1, 1, 1, 1) * gradient.sign(), owner)
            # Before the first step there is no x₋₁, and the whole way to z is taken.
            ahead = towards if number == 0 else point + 0.75 * (towards - point) + 0.25 * (point - before)
            ahead = search.project(ahead, owner)
            if stuck.any():
                key = search.keys(owner[stuck], _STUCK, restart[stuck], number)
                ahead[stuck] = search.elsewhere(owner[stuck], key)
            before, point = torch.where(stuck.view(-1, 1, 1, 1), ahead, point), ahead
            new_value, gradient = search.values_and_gradients(point, owner)
            rises += new_value > value
            value = new_value
            step = torch.where(stuck, 2 * search.eps, step)
            better = (value > best_value) | stuck
            best_value = torch.where(better, value, best_value)
            column = better.view(-1, 1, 1, 1)
            best, best_gradient = torch.where(column, point, best), torch.where(column, gradient, best_gradient)
            if number + 1 in points_of_check:
                few = rises < 0.75 * (number + 1 - last_check)
                same = (step == last_step) & (best_value == last_best)
                last_step, last_best, last_check = step, best_value, number + 1
                back = few | same
                step = torch.where(back, step / 2, step)
                column = back.view(-1, 1, 1, 1)
                point, gradient = torch.where(column, best, point), torch.where(column, best_gradient, gradient)
                before = torch.where(column, best, before)
                value = torch.where(back, best_value, value)
                rises = torch.zeros_like(rises)

    def _stuck(self, search, point, gradient, owner):
        return search.uphill(point, gradient, owner).flatten(1).eq(0).all(1)


def checkpoints(iterations: int) -> set[int]:
    """⌈p_j·N⌉ with p₀ = 0, p₁ = 0.22, p_{j+1} = p_j + max(p_j − p_{j−1} − 0.03, 0.06)."""
    found, last, current = set(), 0.0, 0.22
    while current <= 1:
        found.add(int(-(-current * iterations // 1)))
        last, current = current, current + max(current - last - 0.03, 0.06)
    return found
