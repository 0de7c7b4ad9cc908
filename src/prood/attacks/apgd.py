"""Auto-PGD (Croce and Hein, Reliable evaluation of adversarial robustness, ICML 2020), on the score itself."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from prood.attacks import draws
from prood.attacks.base import Attack
from prood.attacks.search import Search, column

_START, _STUCK = 0, 1  # streams of random numbers


@dataclass(frozen=True)
class APGD(Attack):
    """z = P(x + η·sign ∇s),  x ← P(x + 0.75·(z − x) + 0.25·(x − x₋₁)), with η = 2ε at first.

    At checkpoints that grow denser, a row halves η and goes back to its best point if the score rose in fewer than
    75% of the steps since the last one, or if neither η nor the best score has changed. Restarts run together, from
    uniform points of the ball; `refine` more go on from the best point that the search has found so far. A row that has
    nowhere to climb, on a plateau or at a local maximum, goes back to its best point with half of η; if it is there
    already, it starts anew somewhere else.
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
        point = self._start(search, owner, restart)
        value, gradient = search.values_and_gradients(point, owner)
        before, best, best_value, best_gradient = point, point, value, gradient
        step = torch.full_like(point[:, :1, :1, :1], 2 * search.eps)
        rises = torch.zeros_like(value)
        last_step, last_best, last_check = step, value, 0
        ends = checkpoints(self.iterations)
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
            stuck = search.uphill(point, gradient, owner).flatten(1).eq(0).all(1)
            back = stuck & (value < best_value)
            anew = stuck & ~back
            if number in ends:
                same = (step == last_step).flatten() & (best_value == last_best)
                back |= same | (rises < 0.75 * (number - last_check))
                last_step, last_best, last_check, rises = step, best_value, number, torch.zeros_like(rises)
            returns = column(back)
            point, gradient = torch.where(returns, best, point), torch.where(returns, best_gradient, gradient)
            before, value = torch.where(returns, best, before), torch.where(back, best_value, value)
            step = torch.where(returns, step / 2, step)
            towards = search.project(point + step * gradient.sign(), owner)
            # Before the first step there is no x₋₁, and the whole way to z is taken.
            ahead = towards if number == 0 else point + 0.75 * (towards - point) + 0.25 * (point - before)
            ahead = search.project(ahead, owner)
            before = point
            if anew.any():
                key = search.keys(owner[anew], _STUCK, restart[anew], number)
                ahead[anew] = before[anew] = search.elsewhere(owner[anew], key)
                step = torch.where(column(anew), 2 * search.eps, step)
            point = ahead
            new_value, gradient = search.values_and_gradients(point, owner)
            rises += new_value > value
            value = new_value
            better = (value > best_value) | anew
            best_value = torch.where(better, value, best_value)
            best = torch.where(column(better), point, best)
            best_gradient = torch.where(column(better), gradient, best_gradient)

    def _start(self, search: Search, owner: Tensor, restart: Tensor) -> Tensor:
        low, high, best = search.low[owner], search.high[owner], search.best[owner]
        start = low + (high - low) * draws.uniform_like(search.keys(owner, _START, restart), low)
        # The first of those that refine starts from the best point itself, the others ever farther away from it.
        away = column((restart - self.restarts) / max(2 * self.refine, 1)).to(low.dtype)
        return search.project(torch.where(away < 0, start, best + away * (start - best)), owner)


def checkpoints(iterations: int) -> set[int]:
    """⌈p_j·N⌉ with p₀ = 0, p₁ = 0.22, p_{j+1} = p_j + max(p_j − p_{j−1} − 0.03, 0.06)."""
    found, last, current = set(), 0, 22  # in hundredths: sums of floats would round some up to the next step
    while current <= 100:
        found.add(-(-current * iterations // 100))
        last, current = current, current + max(current - last - 3, 6)
    return found
