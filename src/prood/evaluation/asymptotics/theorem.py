"""Theorem 1 of the paper, checked on a given network: does g fall without limit far away from all data, and where?

For g = W·relu(body(x)) + b with a piecewise linear body and W < 0, g(x + α·d) → −∞, and the confidence of the joint
model goes to 1/K, in every direction d in which some last hidden unit keeps growing (Ux ≠ 0 in the paper's words).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from prood.bounds import NegativeLinear
from prood.errors import BadValue, Unsupported
from prood.evaluation.asymptotics.rays import UNIT, Ray, follow, refusal
from prood.models import Committee, Discriminator, ProoD

EVERY = "every direction"
GROWING = "every direction in which a last hidden unit keeps growing"
NONE = "no direction"


@dataclass(frozen=True)
class Condition:
    """One thing that the theorem needs, whether it holds, and why, in a line."""

    name: str
    holds: bool
    reason: str


@dataclass(frozen=True)
class Theorem:
    """The conditions in the order of the network, and the directions that the theorem `covers` if all of them hold."""

    conditions: tuple[Condition, ...]
    covers: str

    @property
    def holds(self) -> bool:
        return all(condition.holds for condition in self.conditions)


def check_theorem(model: nn.Module) -> Theorem:
    """Check the conditions on a discriminator, on a joint model's, or on any Sequential that claims to be one.

    Nothing is taken from how a network was made: what counts are its layers, and its weights as they are stored. Of a
    committee one member is enough, for g is at most what its scale makes of that member, and grows with it.
    """
    g = model.discriminator if isinstance(model, ProoD) else model
    if isinstance(g, Committee) and _plain(g, Committee):
        return max(map(check_theorem, g.members), key=lambda one: (one.holds, one.covers == EVERY))
    layers = layers_of(model)
    if layers is None:
        reason = f"{type(model).__name__} is not a plain row of layers: nothing is known about it far away"
        return Theorem((Condition("layers", False, reason),), NONE)
    penalty = far_penalty_of(model)
    own = (_layers(layers), _activation(layers), _weights(layers[-1]), _output(layers[-1]))
    conditions = (*own, _far_penalty(penalty)) if penalty else own
    holds = all(condition.holds for condition in conditions)
    return Theorem(conditions, NONE if not holds else EVERY if penalty else GROWING)


def layers_of(model: nn.Module) -> list[nn.Module] | None:
    """The layers of g in a row; None for what is not a row of layers, or has hooks or another forward() around it."""
    if isinstance(model, ProoD):
        return layers_of(model.discriminator)
    if isinstance(model, Discriminator) and _plain(model, Discriminator):
        return _flat(model.body) + _flat(model.tail)
    row = _flat(model)
    return row if row != [model] and len(row) > 1 else None


def far_penalty_of(model: nn.Module) -> float:
    """The weight of the discriminator's far penalty; 0 if it has none."""
    g = model.discriminator if isinstance(model, ProoD) else model
    return g.far_penalty if isinstance(g, Discriminator) else 0.0


def _flat(network: nn.Module) -> list[nn.Module]:
    """A Sequential as a row; one that does something else besides stays whole, for `refusal` to see it."""
    if not isinstance(network, nn.Sequential) or not _plain(network, nn.Sequential):
        return [network]
    return [layer for child in network for layer in _flat(child)]


def _plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return type(module).forward is kind.forward and not hooked


def _layers(layers: list[nn.Module]) -> Condition:
    """All of them piecewise linear: then there is a last affine piece on every ray (Lemma 1 of the paper)."""
    wrong = [reason for layer in layers[:-1] if (reason := refusal(layer))] or [
        f"{name} of {type(layer).__name__} holds values that are not finite"
        for layer in layers
        for name, value in layer.state_dict().items()
        if not value.isfinite().all()
    ]
    reason = wrong[0] if wrong else f"all {len(layers)} are piecewise linear, with finite weights"
    return Condition("layers", not wrong, reason)


def _activation(layers: list[nn.Module]) -> Condition:
    last = layers[-2]
    if type(last) is nn.ReLU:
        return Condition("activation", True, "the last one is a plain ReLU: what it passes on is never negative")
    leak = ": negative weights turn what leaks below zero into growth" if isinstance(last, nn.LeakyReLU) else ""
    return Condition("activation", False, f"the last one is {type(last).__name__}, not a plain ReLU{leak}")


def _weights(last: nn.Module) -> Condition:
    """Strictly negative as the network has them, also on a processor that flushes subnormal numbers to zero."""
    if not isinstance(last, nn.Linear | NegativeLinear) or refusal(last):
        return Condition("weights", False, f"the last layer is {type(last).__name__}, not a linear one")
    weight = last.weight.detach()
    faults = {
        "{:g} is not finite": ~weight.isfinite(),
        "{:g} is positive": weight > 0,
        "one is zero": weight == 0,
        "{:g} is subnormal: a processor that flushes such numbers makes it zero": weight
        > -torch.finfo(weight.dtype).tiny,
    }
    for words, wrong in faults.items():
        if wrong.any():
            value = weight[wrong][0].item()
            reason = words.format(value)
            if isinstance(last, NegativeLinear) and (h := last.log_weight.detach()[wrong][0]).isfinite():
                way = "overflows" if value == -torch.inf else "underflows"
                reason += f", as −exp(h) {way} for h = {h.item():g}"
            return Condition("weights", False, f"{reason} ({int(wrong.sum())} of {weight.numel()})")
    return Condition("weights", True, f"all {weight.numel()} last ones are negative, the largest is {weight.max():.3g}")


def _output(last: nn.Module) -> Condition:
    if getattr(last, "out_features", None) != 1:
        return Condition("output", False, "g must be one number per image")
    bias = getattr(last, "bias", None)
    top = bias.item() if isinstance(bias, Tensor) else 0.0
    return Condition("output", True, f"one number per image, nowhere above the last bias {top:.4g}")


def _far_penalty(weight: float) -> Condition:
    """As g ≤ b, g with the penalty is at most b − weight·‖x − [0, 1]^d‖₁, which falls on every ray."""
    enough = weight >= torch.finfo(torch.float32).tiny
    reason = f"takes {weight:g} times the distance to [0, 1]^d from g" if enough else f"{weight:g} rounds to zero"
    return Condition("far penalty", enough, reason)


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


@torch.no_grad()
def fates(model: nn.Module, directions: Tensor, start: Tensor | None = None, *, rows: int = 64) -> Fates:
    """Follow x + α·d for each direction d to infinity; x is the origin, or `start`: one image, or one a direction.

    Theorem 1 of the paper: with the last hidden units at α·Ud + v there, g = α·⟨W, Ud⟩ + ⟨W, v⟩ + b, and as W < 0 and
    Ud ≥ 0 it falls iff Ud ≠ 0, wherever the ray starts. Decided in float64 with a running bound of the rounding errors
    (`rays.Ray`): a verdict is one about the network with exactly these weights in exact arithmetic.
    """
    layers = layers_of(model)
    if layers is None:
        raise Unsupported(f"cannot follow a {type(model).__name__} to infinity: it must be an nn.Sequential")
    if directions.ndim < 2 or not len(directions) or not directions.isfinite().all():
        raise BadValue("directions are a non-empty batch of finite numbers")
    if (directions == 0).flatten(1).all(1).any():
        raise BadValue("a direction is zero: it leads nowhere")
    origin = torch.zeros_like(directions[:1]) if start is None else start
    starts, penalty, parts = origin.expand_as(directions), far_penalty_of(model), []
    for x, d in zip(torch.split(starts, rows), torch.split(directions, rows), strict=True):
        g = follow(nn.Sequential(*layers), Ray.of(x, d))
        slope, error = g.slope.flatten(1).sum(1), g.error.flatten(1).sum(1)
        limit, beyond = g.offset.flatten(1).sum(1), g.beyond
        if penalty:
            # Far out each pixel with d ≠ 0 is outside [0, 1], and adds |d| per unit of α.
            steps = penalty * d.double().abs().flatten(1).sum(1)
            slope, error = slope - steps, error + d[0].numel() * UNIT * (steps + slope.abs())
            leaves = torch.where(d == 0, 0.0, ((d > 0).double() - x.double()) / d.double()).flatten(1).amax(1)
            beyond = torch.maximum(beyond, leaves)
        decays, grows, stays = slope + error < 0, slope - error > 0, (slope == 0) & (error == 0)
        limit = torch.where(stays, limit, torch.where(decays, -torch.inf, torch.where(grows, torch.inf, torch.nan)))
        parts.append((decays, stays, grows, 0.0 - slope, limit, beyond))
    return Fates(*(torch.cat(values) for values in zip(*parts, strict=True)))
