"""ℓ2 and ℓ1 balls, intersected with a box: the largest value of a linear function, through the dual norm.

For slopes t, a ball of radius ε around x₀ and room dᵢ between x₀ and the box's end in the direction of tᵢ,

    max t·(x − x₀)  =  max Σ|tᵢ|δᵢ   over 0 ≤ δᵢ ≤ dᵢ, ‖δ‖ ≤ ε.

By weak duality every λ ≥ 0 gives a bound of it, and the best λ the maximum itself:

    ℓ1:  λε + Σ max(|tᵢ| − λ, 0)·dᵢ
    ℓ2:  λε²/2 + Σ max over 0 ≤ δ ≤ dᵢ of |tᵢ|δ − λδ²/2

So λ is searched for in any arithmetic, and what it proves is computed once, with care. Without the box (d = ∞) these
are ε times the dual norm of t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from prood.bounds.rounding import positive_sum, up

Norm = Literal["linf", "l2", "l1"]

_SEARCH = 40


@dataclass(frozen=True)
class Ball:
    """All x with ‖x − centre‖ ≤ eps in the ℓ2 or the ℓ1 norm, one for each row."""

    norm: Norm
    centre: Tensor  # (B, *shape)
    eps: Tensor  # (B,), float64

    def rows(self, index: Tensor) -> Ball:
        return replace(self, centre=self.centre[index], eps=self.eps[index])

    def reach(self, slope: Tensor, lower: Tensor, upper: Tensor, owner: Tensor | None = None) -> Tensor:
        """A bound of slope·(x − centre) over the ball inside [lower, upper], per row of `slope`; float64, (R,)."""
        centre, eps = (values if owner is None else values[owner] for values in (self.centre, self.eps))
        slope = slope.double()
        room = torch.where(slope > 0, upper.double() - centre, centre - lower.double()).clamp(min=0)
        return dual_bound(slope.abs().flatten(1), up(room).flatten(1), eps, self.norm)


def dual_bound(slope: Tensor, room: Tensor, eps: Tensor, norm: Norm) -> Tensor:
    """The bound above for slopes ≥ 0, at a λ close to the best one; float64, (R,)."""
    price = _price(slope, room, eps, norm)[:, None]
    if norm == "l1":
        paid = positive_sum(up((slope - price).clamp(min=0) * room, 4))
        return up(paid + price[:, 0] * eps, 4)
    # Where the parabola's top lies inside, t²/2λ; else the value at the end, (t − λd/2)·d, in which t > λd: the
    # difference is at least t/2, and its rounding error a small multiple of it.
    inside = slope <= price * room
    tops = 0.5 * slope * slope / torch.where(inside, price, 1).clamp_min(torch.finfo(slope.dtype).tiny)
    ends = (slope - 0.5 * price * room).clamp(min=0) * room
    paid = positive_sum(up(torch.where(inside, tops, ends), 16))
    spent = torch.where(price[:, 0] > 0, 0.5 * price[:, 0] * eps * eps, 0)  # 0·∞ is nothing
    return up(paid + spent, 8)


@torch.no_grad()
def _price(slope: Tensor, room: Tensor, eps: Tensor, norm: Norm) -> Tensor:
    """A λ at which about all of ε is spent, by bisection; any λ ≥ 0 is a proof."""
    low = torch.zeros_like(eps)
    # ‖min(t/λ, d)‖ ≤ ‖t‖/λ, which is ε at this λ; at radius 0 it must not overflow.
    high = slope.amax(1) if norm == "l1" else slope.norm(dim=1) / eps.clamp_min(1e-30)
    for _ in range(_SEARCH):
        price = 0.5 * (low + high)
        if norm == "l1":
            spent = torch.where(slope > price[:, None], room, 0).sum(1)
        else:
            spent = torch.minimum(slope / price[:, None].clamp_min(1e-300), room).norm(dim=1)
        low, high = torch.where(spent > eps, price, low), torch.where(spent > eps, high, price)
    return high
