"""Piecewise linear functions that rise strictly. Rounding keeps the order, so bounds pass through them."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from prood.errors import BadValue


@dataclass(frozen=True)
class Rising:
    """The function with these `values` at these `knots`: linear between them, parallel to x beyond them.

    So it tells apart whatever x tells apart. Without knots it is x itself.
    """

    knots: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        both = (self.knots, self.values)
        if len(self.knots) != len(self.values) or not all(math.isfinite(one) for some in both for one in some):
            raise BadValue(f"there must be a finite value for each finite knot: not {self.knots} and {self.values}")
        if any(low >= high for some in both for low, high in pairwise(some)):
            raise BadValue(f"knots and values must rise: not {self.knots} and {self.values}")

    @property
    def inverse(self) -> "Rising":
        """Undoes it, up to rounding."""
        return Rising(self.values, self.knots)

    def __call__(self, x: Tensor) -> Tensor:
        """In float64."""
        knots, values = (torch.tensor(some, dtype=torch.float64, device=x.device) for some in (self.knots, self.values))
        return rising(x.contiguous(), knots, values)

    def at(self, x: float) -> float:
        return self(torch.tensor([x], dtype=torch.float64)).item()


def rising(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """The function of `Rising` in float64. It does not fall anywhere, rounding included.

    On each piece a difference, a product with a positive slope and a sum follow one another, which rounding keeps in
    order; at its ends a piece is clamped to the values there.
    """
    x, knots, values = x.double(), knots.double(), values.double()
    if not len(knots):
        return x
    slopes = F.pad(values.diff() / knots.diff(), (1, 1), value=1.0)
    piece = torch.bucketize(x, knots)  # knots below x
    start, end = (piece - 1).clamp(min=0), piece.clamp(max=len(knots) - 1)
    value = values[start] + slopes[piece] * (x - knots[start])
    value = torch.where(piece > 0, value.maximum(values[start]), value)
    return torch.where(piece < len(knots), value.minimum(values[end]), value)
