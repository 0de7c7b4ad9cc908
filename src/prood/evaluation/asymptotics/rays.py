"""A piecewise linear network far out on a ray: exactly affine, with the piece found in one pass through its layers.

Along u(α) = x + α·d every value of the network is slope·α + offset from some α on. An affine layer maps the two apart,
and a ReLU keeps what is positive in the end: slope > 0, or slope = 0 and offset > 0. That pair is all that is passed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import BlockedLinear, NegativeLinear, Normalise, Residual
from prood.errors import Unsupported

UNIT = 2.0**-53
"""The unit roundoff of float64, in which rays are followed."""
Product = Callable[[Tensor, Tensor], Tensor]
Follow = Callable[[Any, "Ray"], "Ray"]


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

    def linear(self, product: Product, weight: Tensor, terms: int, bias: Tensor | None = None) -> Ray:
        """Behind W·(…) + b, where product(x, W) is W·x, with sums of `terms` terms.

        |ŝ − s| ≤ |W|·(error + γ·|slope|) with γ = (terms + 8)·u, made larger by what computing it may round.
        """
        gamma = (terms + 8) * UNIT
        error = product(self.error + gamma * self.slope.abs(), weight.abs()) * (1 + 4 * gamma)
        slope, offset = product(self.slope, weight), product(self.offset, weight)
        return Ray(slope, error, offset if bias is None else offset + bias, self.beyond)

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


def refusal(layer: nn.Module) -> str:
    """Why the far-away piece of this layer is not known; empty if it is."""
    name = type(layer).__name__
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return f"{name} has hooks or a patched forward()"
    if _rule(layer) is None:
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
    reason, rule = refusal(layer), _rule(layer)
    if reason or rule is None:
        raise Unsupported(f"cannot follow a network to infinity: {reason}")
    return rule(layer, ray)


def _rule(layer: nn.Module) -> Follow | None:
    """That of its class, or of one that it derives from without another forward()."""
    kinds = (kind for kind in type(layer).__mro__ if kind in _RULES and kind.forward is type(layer).forward)
    return next((_RULES[kind] for kind in kinds), None)


def _sequential(layer: nn.Sequential, ray: Ray) -> Ray:
    for child in layer:
        ray = follow(child, ray)
    return ray


def _residual(layer: Residual, ray: Ray) -> Ray:
    one, other = follow(layer.body, ray), follow(layer.shortcut, ray)
    slope = one.slope + other.slope
    error = (one.error + other.error + UNIT * slope.abs()) * (1 + 4 * UNIT)
    return Ray(slope, error, one.offset + other.offset, torch.maximum(one.beyond, other.beyond))


def _linear(layer: nn.Linear, ray: Ray) -> Ray:
    """−exp(h) of a NegativeLinear is what the network itself computes, in its own precision."""
    bias = None if layer.bias is None else layer.bias.detach().double()
    return ray.linear(F.linear, layer.weight.detach().double(), layer.in_features, bias)


def _convolution(layer: nn.Conv2d, ray: Ray) -> Ray:
    weight = layer.weight.detach().double()
    bias = None if layer.bias is None else layer.bias.detach().double()[:, None, None]
    product = partial(
        F.conv2d, stride=layer.stride, padding=layer.padding, dilation=layer.dilation, groups=layer.groups
    )
    return ray.linear(product, weight, weight[0].numel(), bias)


def _average(layer: nn.Module, ray: Ray) -> Ray:
    equal = torch.ones((), device=ray.slope.device)
    return ray.linear(lambda x, _: layer(x), equal, math.prod(ray.slope.shape[2:]))


def _normalise(layer: Normalise, ray: Ray) -> Ray:
    return ray.linear(torch.mul, 1 / layer.std.double(), 1, -layer.mean.double() / layer.std.double())


def _batch_norm(layer: nn.BatchNorm2d, ray: Ray) -> Ray:
    """What it makes of 0 is its offset, with or without weights of its own."""
    exact = copy.deepcopy(layer).double()
    shape = (1, layer.num_features, *[1] * (ray.slope.ndim - 2))
    bias = exact(torch.zeros(shape, dtype=torch.float64, device=ray.slope.device))
    assert layer.running_var is not None
    scale = (layer.running_var.double() + layer.eps).rsqrt() * (exact.weight if layer.affine else 1.0)
    return ray.linear(torch.mul, scale.view(shape), 1, bias)


_RULES: dict[type[nn.Module], Follow] = {
    nn.Sequential: _sequential,
    Residual: _residual,
    **dict.fromkeys((nn.Linear, BlockedLinear, NegativeLinear), _linear),
    nn.Conv2d: _convolution,
    **dict.fromkeys((nn.AvgPool2d, nn.AdaptiveAvgPool2d), _average),
    Normalise: _normalise,
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d), _batch_norm),
    nn.ReLU: lambda layer, ray: ray.rectified(),
    nn.LeakyReLU: lambda layer, ray: ray.rectified(layer.negative_slope),
    **dict.fromkeys((nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d), lambda layer, ray: ray.reshaped(layer)),
}
