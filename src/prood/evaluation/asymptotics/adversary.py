"""The search for directions in which a model stays sure of itself (App. A of the paper)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prood.errors import BadValue, Diverged
from prood.evaluation.asymptotics.far import random_directions
from prood.models import ProoD, score_of

Objective = Callable[[Tensor], Tensor]
"""One number per image, to be made large."""


@dataclass(frozen=True)
class Stage:
    """`steps` steps of this length on the sphere of this radius (ℓ2)."""

    radius: float
    steps: int
    step: float


PAPER = (Stage(100.0, 10_000, 0.1), Stage(100.0, 10_000, 0.01), Stage(1000.0, 20_000, 0.1))
"""The schedule of the paper's appendix."""
FAR = (Stage(100.0, 200, 2.0), Stage(1000.0, 100, 10.0), Stage(1e6, 300, 1e4))
"""Fewer and longer steps, and then so far out that only the slope at infinity counts: a point at the cap of g on the
paper's spheres may still decay, and there the climb would go on."""
SCHEDULES = {"paper": PAPER, "far": FAR}


@dataclass(frozen=True)
class Found:
    """The best directions of a search, each scaled to a largest pixel of 1, and the objective on the last sphere.

    `flat` says where the search ended because its gradient was exactly zero: there is no way up from there.
    """

    directions: Tensor
    values: Tensor
    flat: Tensor
    steps: int  # of the longest search


def objective_of(model: nn.Module) -> Objective:
    """What the paper maximises: g of a discriminator or of a joint model; of any other model its score."""
    return score_of(model.discriminator if isinstance(model, ProoD) else model).quick


def adversarial_directions(
    model: nn.Module | Objective,
    shape: tuple[int, ...],
    *,
    count: int = 100,
    schedule: tuple[Stage, ...] = FAR,
    unit: bool = True,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Found:
    """Climb on spheres around the origin from random points of [−0.5, 0.5]^d, and keep the best point of each.

    A step adds step·∇/‖∇‖ and projects back onto the sphere; with `unit` false it adds step·∇, as in the paper, where a
    step is then as long as the network is steep. A point with a gradient of exactly zero has arrived: it is left alone,
    and where all have, a stage ends early.
    """
    if not schedule:
        raise BadValue("a search for directions needs at least one stage")
    if isinstance(model, nn.Module):
        model = objective_of(model.to(device).eval())
    points = random_directions(count, shape, "uniform", seed).to(device)
    best, most = points, 0
    for stage in schedule:
        points, values, flat, taken = _climb(model, _onto(best, stage.radius), stage, unit)
        best, most = points, most + taken
    largest = best.flatten(1).abs().amax(1).view(-1, *[1] * len(shape))
    return Found((best / largest).cpu(), values.cpu(), flat.cpu(), most)


def _onto(points: Tensor, radius: float) -> Tensor:
    return points * (radius / _norms(points))


def _norms(points: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(points, dim=tuple(range(1, points.ndim)), keepdim=True)
    return norms


def _climb(objective: Objective, points: Tensor, stage: Stage, unit: bool) -> tuple[Tensor, Tensor, Tensor, int]:
    """(best points, their values, where the way up ended, steps made)"""
    best = points.clone()
    top = torch.full((len(points),), -torch.inf, dtype=torch.float64, device=points.device)
    moving = torch.arange(len(points), device=points.device)
    for step in range(stage.steps + 1):
        values, gradients = _ascent(objective, points[moving])
        better = values > top[moving]
        top[moving[better]], best[moving[better]] = values[better], points[moving[better]]
        norms = _norms(gradients)
        steep = norms.flatten() > 0
        moving, gradients, norms = moving[steep], gradients[steep], norms[steep]
        if not len(moving) or step == stage.steps:
            break
        steps = stage.step * (gradients / norms if unit else gradients)
        points[moving] = _onto(points[moving] + steps, stage.radius)
    flat = torch.ones_like(top, dtype=torch.bool)
    flat[moving] = False
    return best, top, flat, step


def _ascent(objective: Objective, points: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        points = points.detach().requires_grad_(True)
        values = objective(points)
        (gradients,) = torch.autograd.grad(values.sum(), points)
    if values.isnan().any():
        raise Diverged("a value far away is not a number: the model overflows there")
    return values.detach().double(), gradients.nan_to_num(0.0, 0.0, 0.0)
