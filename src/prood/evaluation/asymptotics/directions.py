"""In which directions g falls without limit, and in which it stays: decided from the affine piece at infinity."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prood.data import generator
from prood.errors import BadValue, UnknownName, Unsupported
from prood.evaluation.asymptotics.rays import UNIT, Ray, follow
from prood.evaluation.asymptotics.theorem import guard_of, layers_of

KINDS = ("uniform", "gaussian")
"""Uniform in [−0.5, 0.5]^d as in the paper's appendix, or Gaussian: no axis is preferred."""


@dataclass(frozen=True)
class Fates:
    """What becomes of g(x + α·d) as α → ∞, an entry for each direction; float64.

    It falls by `rate` per unit of α (d as given). If it `decays`, it falls without limit; if it `stays`, it comes to
    rest at `limit`; if it `grows`, the network is none of Theorem 1. None of them: the rate is too close to zero for
    float64 to say. g is affine for α ≥ `beyond`.
    """

    decays: Tensor
    stays: Tensor
    grows: Tensor
    rate: Tensor
    limit: Tensor
    beyond: Tensor

    def summary(self) -> dict[str, Any]:
        """Counts and extremes, JSON-able: rates of those that decay, limits of those that stay."""
        rates, limits = self.rate[self.decays], self.limit[self.stays]
        return {
            "directions": len(self.rate),
            **{name: int(getattr(self, name).sum()) for name in ("decays", "stays", "grows")},
            "undecided": int((~self.decays & ~self.stays & ~self.grows).sum()),
            "smallest_rate": rates.min().item() if len(rates) else None,
            "largest_limit": limits.max().item() if len(limits) else None,
        }


def random_directions(count: int, shape: tuple[int, ...], kind: str = "uniform", seed: int = 0) -> Tensor:
    """So many random directions for images of this shape; float32, the same for the same seed."""
    if kind not in KINDS:
        raise UnknownName(f"unknown kind of directions {kind!r}: choose one of {', '.join(KINDS)}")
    if count < 1:
        raise BadValue(f"at least one direction is needed, not {count}")
    random = generator(seed, 0, 0)
    if kind == "uniform":
        return torch.rand((count, *shape), generator=random) - 0.5
    return torch.randn((count, *shape), generator=random)


@torch.no_grad()
def fates(model: nn.Module, directions: Tensor, start: Tensor | None = None, *, rows: int = 64) -> Fates:
    """Follow x + α·d for each direction d to infinity; x is the origin, or `start`: one image, or one a direction.

    Theorem 1 of the paper: with the last hidden units at α·Ud + v there, g = α·⟨W, Ud⟩ + ⟨W, v⟩ + b, and as W < 0 and
    Ud ≥ 0 it falls iff Ud ≠ 0, wherever the ray starts. Decided in float64 with a running bound of the rounding errors
    (`rays.Ray`): a verdict is one about the network with exactly these weights in exact arithmetic.
    """
    layers = layers_of(model)
    if layers is None:
        raise Unsupported(f"cannot follow a {type(model).__name__} to infinity: it is no row of layers")
    if directions.ndim < 2 or not len(directions) or not directions.isfinite().all():
        raise BadValue("directions are a non-empty batch of finite numbers")
    if (directions == 0).flatten(1).all(1).any():
        raise BadValue("a direction is zero: it leads nowhere")
    origin = torch.zeros_like(directions[:1]) if start is None else start
    starts, guard, parts = origin.expand_as(directions), guard_of(model), []
    for x, d in zip(torch.split(starts, rows), torch.split(directions, rows), strict=True):
        g = follow(nn.Sequential(*layers), Ray.of(x, d))
        slope, error = g.slope.flatten(1).sum(1), g.error.flatten(1).sum(1)
        limit, beyond = g.offset.flatten(1).sum(1), g.beyond
        if guard:
            # Far out each pixel with d ≠ 0 is outside [0, 1], and adds |d| per unit of α.
            steps = guard * d.double().abs().flatten(1).sum(1)
            slope, error = slope - steps, error + d[0].numel() * UNIT * (steps + slope.abs())
            leaves = torch.where(d == 0, 0.0, ((d > 0).double() - x.double()) / d.double()).flatten(1).amax(1)
            beyond = torch.maximum(beyond, leaves)
        decays, grows, stays = slope + error < 0, slope - error > 0, (slope == 0) & (error == 0)
        limit = torch.where(stays, limit, torch.where(decays, -torch.inf, torch.where(grows, torch.inf, torch.nan)))
        parts.append((decays, stays, grows, 0.0 - slope, limit, beyond))
    return Fates(*(torch.cat(values) for values in zip(*parts, strict=True)))
