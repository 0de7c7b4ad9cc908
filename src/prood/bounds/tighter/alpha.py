"""α-CROWN: the lower slopes of the ReLUs chosen by gradient descent on the bound (Xu et al. 2021).

Every α in [0, 1] gives a valid bound, so the search may run in any arithmetic; what it finds is evaluated once in the
arithmetic that was asked for.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from prood.bounds.arithmetic import searching
from prood.bounds.concrete import maximum, start
from prood.bounds.rounding import per_row
from prood.bounds.tighter.chain import Choice, Linear, usual

K = TypeVar("K")

RATE = 0.25
"""The first step's length; later ones are shorter, so that the last is a small fraction of it."""


def initial(linear: Linear, *, middle: bool) -> Choice:
    """The two choices that CROWN-IBP tries: the slopes at the image, or at the middle of the interval."""
    return {number: usual(linear.box(number), middle=middle) for number in linear.bends}


def select(where: Tensor, one: Mapping[K, Tensor], other: Mapping[K, Tensor]) -> dict[K, Tensor]:
    """Row by row, `one` where it says so, else `other`."""
    return {key: torch.where(per_row(where, value), value, other[key]) for key, value in one.items()}


def better_start(linear: Linear) -> Choice:
    at_image, at_middle = (initial(linear, middle=middle) for middle in (False, True))
    with torch.no_grad():
        return select(linear.bound(at_image) <= linear.bound(at_middle), at_image, at_middle)


def descend(
    bound_of: Callable[[dict[K, Tensor], dict[K, Tensor]], Tensor],
    choice: Mapping[K, Tensor],
    steps: int,
    *,
    signs: Mapping[K, Tensor] | None = None,
    extra: Mapping[K, Tensor] | None = None,
    rate: float = RATE,
) -> tuple[dict[K, Tensor], dict[K, Tensor]]:
    """The best slopes seen for each row, and the best multipliers of split units.

    `bound_of`: the bound (R,) as a function of the slopes and of what is added to the planes, both by layer. `signs`:
    per layer, ±1 where a unit is known to be ≥ 0 or ≤ 0 because it was split, else 0. There β·sign·z is added to the
    plane (β-CROWN, Wang et al. 2021), and the slope is fixed. `extra` holds the first values of β·sign.
    """
    signs = signs or {}
    slopes = {key: value.detach().clone() for key, value in choice.items()}
    betas = {key: sign * extra[key] if extra else torch.zeros_like(sign) for key, sign in signs.items()}
    best, best_extra, lowest = slopes, {key: betas[key] * sign for key, sign in signs.items()}, None
    if steps < 1 or not slopes:
        return best, best_extra
    variables = [value.requires_grad_() for value in (*slopes.values(), *betas.values())]
    optimizer = torch.optim.Adam(variables, lr=rate, betas=(0.9, 0.99))
    for step in range(steps + 1):
        with torch.enable_grad(), searching(variables[0].device):
            added = {key: betas[key] * sign for key, sign in signs.items()}
            bound = bound_of(slopes, added)
        with torch.no_grad():
            improved = torch.ones_like(bound, dtype=torch.bool) if lowest is None else bound < lowest
            lowest = bound.detach() if lowest is None else torch.where(improved, bound, lowest)
            best, best_extra = select(improved, slopes, best), select(improved, added, best_extra)
            if step == steps or not bound.requires_grad:
                break
            with searching(bound.device):
                gradients = torch.autograd.grad(bound, variables, torch.ones_like(bound), allow_unused=True)
            for variable, gradient in zip(variables, gradients, strict=True):
                variable.grad = gradient
            optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
            optimizer.step()
            for key, slope in slopes.items():
                slope.clamp_(0, 1)
                if key in signs:
                    slope.copy_(torch.where(signs[key] != 0, best[key], slope))
            for beta in betas.values():
                beta.clamp_(min=0)
    return best, best_extra


def tilts(linear: Linear, choice: Choice, steps: int, extra: Choice | None = None) -> Tensor | None:
    """The slopes π for `Joint` that descent finds, with all other slopes as they are; None where there is no such.

    The search starts from those that `linear` has.
    """
    joint = linear.joint
    if joint is None or steps < 1:
        return None
    with torch.no_grad():
        watch: Choice = {}
        slopes = {linear.layers[number]: slope for number, slope in choice.items()}
        output = linear.box(len(linear.layers)).radius
        plane = start(output, sound=linear.boxes[0].sound, slopes=slopes, owner=linear.owner)
        plane = linear.back(plane, extra or {}, watch, until=joint.number - 1)
        group = joint.group(watch[joint.number], linear.box(joint.number), linear.owner)
        scale = group.scale

    def bound_of(places: Choice, _: Choice) -> Tensor:
        lowered = joint.lower(plane, group, (2 * places[0] - 1) * scale)
        for number in reversed(range(joint.number - 1)):
            lowered = linear.pulls[number](lowered)
        return maximum(linear.boxes[0], lowered)

    places = torch.full_like(scale, 0.5)
    if linear.tilt is not None:
        places += 0.5 * (linear.tilt / scale.clamp_min(torch.finfo(scale.dtype).tiny)).clamp(-1, 1)
    best, _ = descend(bound_of, {0: places}, steps, rate=0.1)  # relative to their range
    return (2 * best[0] - 1) * scale
