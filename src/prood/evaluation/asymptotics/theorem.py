"""Theorem 1 of the paper, checked on a given network: does g fall without limit far away from all data?

For g = W·relu(body(x)) + b with a piecewise linear body and W < 0, g(x + α·d) → −∞, and the confidence of the joint
model goes to 1/K, in every direction d in which some last hidden unit keeps growing (Ux ≠ 0 in the paper's words).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prood.bounds import NegativeLinear
from prood.evaluation.asymptotics.rays import refusal
from prood.models import Discriminator, ProoD

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
    """Check the conditions on a discriminator, on that of a joint model, or on any Sequential that claims to be one.

    Nothing is taken from how a network was made: what counts are its layers, and its weights as they are stored.
    """
    layers = layers_of(model)
    if layers is None:
        reason = f"{type(model).__name__} is no plain row of layers: nothing is known of it far away"
        return Theorem((Condition("layers", False, reason),), NONE)
    guard = guard_of(model)
    own = (_layers(layers), _activation(layers), _weights(layers[-1]), _output(layers[-1]))
    conditions = (*own, _guard(guard)) if guard else own
    holds = all(condition.holds for condition in conditions)
    return Theorem(conditions, NONE if not holds else EVERY if guard else GROWING)


def layers_of(model: nn.Module) -> list[nn.Module] | None:
    """The layers of g in a row; None for what is no row of layers, or has hooks or another forward() around it."""
    if isinstance(model, ProoD):
        return layers_of(model.discriminator)
    if isinstance(model, Discriminator) and _plain(model, Discriminator):
        return _flat(model.body) + _flat(model.tail)
    row = _flat(model)
    return row if row != [model] and len(row) > 1 else None


def guard_of(model: nn.Module) -> float:
    """The weight of the discriminator's guard; 0 if there is none."""
    g = model.discriminator if isinstance(model, ProoD) else model
    return g.guard if isinstance(g, Discriminator) else 0.0


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


def _guard(weight: float) -> Condition:
    """As g ≤ b, the guarded one is at most b − weight·‖x − [0, 1]^d‖₁, which falls on every ray."""
    enough = weight >= torch.finfo(torch.float32).tiny
    reason = f"takes {weight:g} times the distance to [0, 1]^d from g" if enough else f"{weight:g} rounds to zero"
    return Condition("guard", enough, reason)
