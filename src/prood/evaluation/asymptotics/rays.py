"""A piecewise linear network far out on a ray: exactly affine, with the piece found in one pass through its layers.

Along u(α) = x + α·d every value of the network is slope·α + offset from some α on. An affine layer maps the two apart,
and a ReLU keeps what is positive in the end: slope > 0, or slope = 0 and offset > 0. That pair is all that is passed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import BlockedLinear, NegativeLinear, Normalise, Residual
from prood.errors import Unsupported

UNIT = 2.0**-53
"""The unit roundoff of float64, in which rays are followed."""


@dataclass(frozen=True)
class Ray:
    """slope·α + offset for every α ≥ `beyond`, a row for each ray; all in float64.

    The exact slope differs by at most `error`, a running bound of all roundings so far. It is 0 where a value is known
    to be constant, because the units that it comes from are known to be switched off. Offsets have no such bound.
    """

    slope: Tensor
    error: Tensor
    offset: Tensor
    beyond: Tensor  # (N,)

    @classmethod
    def of(cls, start: Tensor, direction: Tensor) -> Ray:
        """x + α·d itself."""
        slope = direction.double()
        return cls(slope, torch.zeros_like(slope), start.double().expand_as(slope), slope.new_zeros(len(slope)))

    def linear(self, product: Callable[[Tensor, bool], Tensor], terms: int, bias: Tensor | None = None) -> Ray:
        """Behind W·(…) + b, where product(x, False) is W·x and product(x, True) is |W|·x, sums of so many terms.

        |ŝ − s| ≤ |W|·(error + γ·|slope|) with γ = (terms + 8)·u, made larger by what computing it may round.
        """
        gamma = (terms + 8) * UNIT
        error = product(self.error + gamma * self.slope.abs(), True) * (1 + 4 * gamma)
        offset = product(self.offset, False)
        return replace(
            self, slope=product(self.slope, False), error=error, offset=offset if bias is None else offset + bias
        )

    def rectified(self, leak: float = 0.0) -> Ray:
        """Behind a ReLU, or a leaky one. As ReLU(s) changes by no more than s does, the error does not grow."""
        positive = (self.slope > 0) | ((self.slope == 0) & (self.offset > 0))
        one = torch.ones_like(self.slope)
        factor = torch.where(positive, one, leak * one)
        off = self.slope + self.error <= 0
        error = torch.where(off, abs(leak) * one, max(1.0, abs(leak)) * one) * self.error
        turns = torch.where(self.slope == 0, 0.0, -self.offset / self.slope).flatten(1).amax(1)
        return Ray(factor * self.slope, error, factor * self.offset, torch.maximum(self.beyond, turns))

    def reshaped(self, change: Callable[[Tensor], Tensor]) -> Ray:
        return Ray(change(self.slope), change(self.error), change(self.offset), self.beyond)


Follow = Callable[[Any, Ray], Ray]
_RULES: dict[type[nn.Module], Follow] = {}
R = TypeVar("R", bound=Follow)


def _follows(*layers: type[nn.Module]) -> Callable[[R], R]:
    def decorate(rule: R) -> R:
        _RULES.update(dict.fromkeys(layers, rule))
        return rule

    return decorate


def refusal(layer: nn.Module) -> str:
    """Why the far-away piece of this layer is not known; empty if it is."""
    name = type(layer).__name__
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return f"{name} has hooks or a patched forward()"
    if not any(cls in _RULES and cls.forward is type(layer).forward for cls in type(layer).__mro__):
        return f"{name} is not known to be piecewise linear"
    if layer.training and isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.Dropout | nn.Dropout2d):
        return f"{name} is in training mode"
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.running_var is None:
        return f"{name} has no running statistics, so that it depends on the batch"
    if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return f"{name} pads with other values than zeros"
    if isinstance(layer, nn.AvgPool2d) and not layer.count_include_pad and layer.padding not in (0, (0, 0)):
        return f"{name} leaves its padding out of the mean"
    return next((reason for child in layer.children() if (reason := refusal(child))), "")


def follow(layer: nn.Module, ray: Ray) -> Ray:
    """The rays behind a layer or a network of layers that `refusal` has nothing against."""
    reason = refusal(layer)
    if reason:
        raise Unsupported(f"cannot follow a network to infinity: {reason}")
    rule = next(_RULES[cls] for cls in type(layer).__mro__ if cls in _RULES and cls.forward is type(layer).forward)
    return rule(layer, ray)


def _exact(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.detach().double()


@_follows(nn.Sequential)
def _sequential(layer: nn.Sequential, ray: Ray) -> Ray:
    for child in layer:
        ray = follow(child, ray)
    return ray


@_follows(Residual)
def _residual(layer: Residual, ray: Ray) -> Ray:
    one, other = follow(layer.body, ray), follow(layer.shortcut, ray)
    slope = one.slope + other.slope
    error = (one.error + other.error + UNIT * slope.abs()) * (1 + 4 * UNIT)
    return Ray(slope, error, one.offset + other.offset, torch.maximum(one.beyond, other.beyond))


@_follows(nn.Linear, BlockedLinear, NegativeLinear)
def _linear(layer: nn.Linear, ray: Ray) -> Ray:
    """−exp(h) of a NegativeLinear is what the network itself computes, in its own precision."""
    weight, bias = layer.weight.detach().double(), _exact(layer.bias)
    return ray.linear(lambda x, absolute: F.linear(x, weight.abs() if absolute else weight), layer.in_features, bias)


@_follows(nn.Conv2d)
def _convolution(layer: nn.Conv2d, ray: Ray) -> Ray:
    weight, bias = layer.weight.detach().double(), _exact(layer.bias)

    def product(x: Tensor, absolute: bool) -> Tensor:
        values = weight.abs() if absolute else weight
        padding: Any = layer.padding
        return F.conv2d(x, values, None, layer.stride, padding, layer.dilation, layer.groups)

    return ray.linear(product, weight[0].numel(), None if bias is None else bias[:, None, None])


@_follows(nn.AvgPool2d, nn.AdaptiveAvgPool2d)
def _average(layer: nn.Module, ray: Ray) -> Ray:
    return ray.linear(lambda x, _: layer(x), math.prod(ray.slope.shape[2:]))


@_follows(Normalise)
def _normalise(layer: Normalise, ray: Ray) -> Ray:
    scale, shift = 1 / layer.std.double(), -layer.mean.double() / layer.std.double()
    return ray.linear(lambda x, _: x * scale, 1, shift)


@_follows(nn.BatchNorm1d, nn.BatchNorm2d)
def _batch_norm(layer: nn.BatchNorm2d, ray: Ray) -> Ray:
    """What it makes of 0 is its offset, with or without weights of its own."""
    exact = copy.deepcopy(layer).double()
    shape = (1, layer.num_features, *[1] * (ray.slope.ndim - 2))
    bias = exact(torch.zeros(shape, dtype=torch.float64, device=ray.slope.device))
    assert layer.running_var is not None
    scale = (layer.running_var.double() + layer.eps).rsqrt() * (exact.weight if layer.affine else 1.0)
    scale = scale.view(shape)
    return ray.linear(lambda x, absolute: x * (scale.abs() if absolute else scale), 1, bias)


@_follows(nn.ReLU)
def _relu(layer: nn.ReLU, ray: Ray) -> Ray:
    return ray.rectified()


@_follows(nn.LeakyReLU)
def _leaky(layer: nn.LeakyReLU, ray: Ray) -> Ray:
    return ray.rectified(layer.negative_slope)


@_follows(nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d)
def _reshape(layer: nn.Module, ray: Ray) -> Ray:
    return ray.reshaped(layer)
