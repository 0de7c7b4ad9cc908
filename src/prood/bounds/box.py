"""Axis-aligned boxes as centre and radius, the form in which bounds travel through a network, and balls inside them.

ℓ2 and ℓ1 balls meet a network at its input, where a linear function is bounded over the ball inside the box through the
dual norm. For slopes t, a radius ε around x₀ and room dᵢ between x₀ and the box's end in the direction of tᵢ,

    max t·(x − x₀)  =  max Σ|tᵢ|δᵢ   over 0 ≤ δᵢ ≤ dᵢ, ‖δ‖ ≤ ε.

By weak duality every λ ≥ 0 gives a bound of it, and the best λ the maximum itself:

    ℓ1:  λε + Σ max(|tᵢ| − λ, 0)·dᵢ
    ℓ2:  λε²/2 + Σ max over 0 ≤ δ ≤ dᵢ of |tᵢ|δ − λδ²/2

So λ is searched for in any arithmetic, and what it proves is computed once, with care. Without the box (d = ∞) these
are ε times the dual norm of t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from prood.bounds.rounding import SMALLEST, outward, per_row, positive_sum, up
from prood.errors import BadValue

Norm = Literal["linf", "l2", "l1"]
Clip = tuple[float, float] | None
"""The least and the largest value of a pixel, if there are such."""


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


@dataclass(frozen=True)
class Box:
    """A batch whose first rows are single points and whose last rows are boxes [centre − radius, centre + radius].

    `centre` has P + B rows and `radius` has B. One pass through the layers thus serves P points and B boxes: in
    training the in-distribution batch shares every convolution with the centres of the out-distribution boxes.
    """

    centre: Tensor
    radius: Tensor
    anchored: bool = False  # one point a box, inside it: where a linear relaxation has a choice, it is tight there
    exact_upper: Tensor | None = None  # centre + radius, where a layer knows it without the rounding of the sum
    sound: bool = False  # contains every value that rounding may lead to, in the network and in the bound itself
    overflow: Tensor | None = None  # sound boxes only, (B,): whether some sum may leave the range of float32
    within: Ball | None = None  # at the input: what is meant is the box's part inside this ball
    positive: bool = False  # sound boxes only: no value below zero, whatever the rounding of the ends says

    @classmethod
    def ball(cls, images: Tensor, eps: float | Tensor, *, clip: Clip = (0.0, 1.0), points: Tensor | None = None) -> Box:
        """The ℓ∞ balls of radius `eps` (a number, or one per image) around `images`, cut to `clip`.

        `points` are extra rows that only want the ordinary forward pass.
        """
        eps = _per_image(eps, images)
        lower, upper = images - eps, images + eps
        if clip is not None:
            lower, upper = lower.clamp(*clip), upper.clamp(*clip)
        centre = torch.lerp(lower, upper, 0.5)
        radius = upper - centre
        return cls(centre if points is None else torch.cat([points, centre]), radius)

    @classmethod
    def sound_ball(cls, images: Tensor, eps: float | Tensor, *, clip: Clip = (0.0, 1.0)) -> Box:
        """The smallest sound box around the ℓ∞ balls cut to `clip`; as points, the images themselves."""
        # In float64, with a relative error far below float32's, and then to the next float32 numbers outside.
        exact = images.double()
        given = torch.as_tensor(_per_image(eps, exact), dtype=exact.dtype, device=images.device)
        # x − ε in float32 takes ε rounded, and where it cancels that is more than the last place of the result.
        eps = torch.maximum(given, given.to(images.dtype).double())
        lower, upper = outward((exact - eps).to(images.dtype), (exact + eps).to(images.dtype))
        if clip is not None:
            lower, upper = lower.clamp(*clip), upper.clamp(*clip)
            images = images.clamp(*clip)
        none = torch.zeros(len(images), dtype=torch.bool, device=images.device)
        empty = cls(images[:0], images[:0], anchored=True, sound=True, overflow=none)
        return empty.between(lower, upper, images)

    def onto(self, centre: Tensor, radius: Tensor) -> Box:
        """The box after a layer."""
        return Box(centre, radius, self.anchored, sound=self.sound, overflow=self.overflow)

    def between(self, lower: Tensor, upper: Tensor, points: Tensor) -> Box:
        """The box after a layer that knows its ends and the images of the points."""
        centre = torch.lerp(lower, upper, 0.5)
        radius = upper - centre
        if self.sound:  # centre and radius are rounded: the radius must make up for it, and a point stay a point
            radius = torch.where(lower == upper, 0, up(torch.maximum(radius, centre - lower)) + SMALLEST)
        return self.onto(torch.cat([points, centre]) if len(points) else centre, radius)

    def double(self) -> Box:
        """The same box in float64."""
        return replace(self, centre=self.centre.double(), radius=self.radius.double())

    @property
    def n_points(self) -> int:
        return len(self.centre) - len(self.radius)

    @property
    def points(self) -> Tensor:
        """The rows that are single points."""
        return self.centre[: self.n_points]

    @property
    def middle(self) -> Tensor:
        """The centres of the rows that are boxes."""
        return self.centre[self.n_points :] if self.n_points else self.centre

    @property
    def lower(self) -> Tensor:
        lower = self._outward(widen(self.middle) - self.radius, -torch.inf)
        return lower.clamp(min=0) if self.positive else lower

    @property
    def upper(self) -> Tensor:
        if self.exact_upper is not None:
            return self.exact_upper
        return self._outward(widen(self.middle) + self.radius, torch.inf)

    def _outward(self, ends: Tensor, where: float) -> Tensor:
        if not self.sound:
            return ends
        return torch.where(self.radius == 0, ends, torch.nextafter(ends, ends.new_full((), where)))

    @property
    def size(self) -> Tensor:
        """The largest absolute value in the box."""
        size = widen(self.middle).abs() + self.radius
        return up(size) if self.sound else size

    def monotone(self, function: Callable[[Tensor], Tensor]) -> Box:
        """The image of the box under a function that does not decrease in any coordinate."""
        points = function(self.points) if self.n_points else self.points
        return self.between(function(self.lower), function(self.upper), points)


def widen(x: Tensor) -> Tensor:
    """At least float32. Autocast may run the products in half precision, and centre and radius stay as they come out,
    each with its own digits; but in a sum of the two a small radius would drown."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def either(*flags: Tensor | None) -> Tensor | None:
    """Where one of the flags is set; a box that is not sound has none."""
    there = [flag for flag in flags if flag is not None]
    return torch.stack(there).any(0) if there else None


def _per_image(eps: float | Tensor, images: Tensor) -> float | Tensor:
    if isinstance(eps, int | float):
        return eps
    # A list or an array as well: it must not be broadcast along the pixels, nor be rounded.
    eps = torch.as_tensor(eps, dtype=eps.dtype if isinstance(eps, Tensor) else torch.float64)
    if not eps.ndim:
        return eps
    if eps.numel() not in (1, len(images)):
        raise BadValue(f"eps is one number, or one per image: got {eps.numel()} for {len(images)} images")
    return per_row(eps, images).to(images)


def dual_bound(slope: Tensor, room: Tensor, eps: Tensor, norm: Norm) -> Tensor:
    """The bound above for slopes ≥ 0, at a λ close to the best one; float64, (R,)."""
    price = _price(slope, room, eps, norm)[:, None]
    if norm == "l1":
        paid = positive_sum(up((slope - price).clamp(min=0) * room, 4))
        return up(paid + price[:, 0] * eps, 4)
    # Where the parabola's top lies inside, t²/2λ; otherwise the value at the end, (t − λd/2)·d, in which t > λd: the
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
    for _ in range(40):
        price = 0.5 * (low + high)
        if norm == "l1":
            spent = torch.where(slope > price[:, None], room, 0).sum(1)
        else:
            spent = torch.minimum(slope / price[:, None].clamp_min(1e-300), room).norm(dim=1)
        low, high = torch.where(spent > eps, price, low), torch.where(spent > eps, high, price)
    return high
