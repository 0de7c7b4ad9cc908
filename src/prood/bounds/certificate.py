"""Upper bounds of a scalar network over a ball: by intervals, by CROWN-IBP, or the smaller of the two."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from prood.bounds.box import Box
from prood.bounds.registry import NoLinearRule, Plane, Pullback, Slopes, interval, relax
from prood.bounds.rounding import check_deployed, positive_sum, strict
from prood.errors import ProodError

Method = Literal["best", "crown-ibp", "ibp"]
Arithmetic = Literal["sound", "plain"]


def upper_bound(
    network: nn.Module,
    images: Tensor,
    eps: float | Tensor,
    *,
    method: Method = "best",
    arithmetic: Arithmetic = "sound",
    clip: tuple[float, float] | None = (0.0, 1.0),
) -> Tensor:
    """b with network(u) ≤ b for every u with ‖u − x‖∞ ≤ eps inside `clip`, per image; shape (N,).

    `network` maps a batch to one number per image, shape (N, 1). "ibp" passes a box forwards (Eq. 6);
    "crown-ibp" takes those boxes as pre-activation bounds and passes one linear relaxation backwards; "best" is
    the smaller of the two, or the interval bound alone where a layer has no linear rule.

    "sound" arithmetic covers every value that the network may return in float32, in any order of summation
    (docs/soundness.md), and has no gradient. "plain" is the arithmetic of the tensors: rounding errors are not
    accounted for, except that the bound is never below the network's own value at the image.
    """
    if method not in get_args(Method):
        raise ProodError(f"unknown bound method {method!r}: choose one of {', '.join(get_args(Method))}")
    if arithmetic not in get_args(Arithmetic):
        raise ProodError(f"unknown arithmetic {arithmetic!r}: choose one of {', '.join(get_args(Arithmetic))}")
    if not torch.as_tensor(eps).ge(0).all():
        raise ProodError("eps is a radius: it must not be negative or NaN")
    if arithmetic == "sound":
        check_deployed(network, images)
        with strict(images.device), torch.no_grad():
            box = Box.sound_ball(images, eps, clip=clip)
            if method != "ibp":
                # In float64, where our own rounding does not count: there is more of it in linear bounds.
                network, box = copy.deepcopy(network).double(), box.double()
            return _down(_bound(network, box, method))
    anchors = images if clip is None else images.clamp(*clip)
    return _bound(network, replace(Box.ball(images, eps, clip=clip, points=anchors), anchored=True), method)


def _bound(network: nn.Module, box: Box, method: Method) -> Tensor:
    try:
        output, pullback = (interval(network, box), None) if method == "ibp" else relax(network, box)
    except NoLinearRule:
        if method == "crown-ibp":
            raise
        output, pullback = interval(network, box), None
    bound = _scalar(output.upper)
    if pullback is not None:
        # Neither choice of the lower slopes wins always: for small radii that of the image, for large ones the middle.
        linear = torch.minimum(*(concretise(box, pullback, output.radius, middle=middle) for middle in (False, True)))
        bound = linear if method == "crown-ibp" else torch.minimum(linear, bound)
    if output.overflow is not None:
        return torch.where(output.overflow | bound.isnan(), torch.inf, bound)
    return torch.maximum(bound, _scalar(output.points))


def _down(bound: Tensor) -> Tensor:
    """The largest float32 number that is not above the bound: what the network returns is one, so none is lost."""
    rounded = bound.float()
    return torch.where(rounded > bound, torch.nextafter(rounded, rounded.new_tensor(-torch.inf)), rounded)


def _scalar(output: Tensor) -> Tensor:
    """One number per row; any other shape would be bounded as a sum, or broadcast."""
    if output.ndim != 2 or output.shape[1] != 1:
        raise ProodError(f"the network must return one number per image, shape (N, 1), not {tuple(output.shape)}")
    return output.squeeze(1)


def concretise(
    box: Box, pullback: Pullback, output: Tensor, *, slopes: Slopes | None = None, middle: bool = False
) -> Tensor:
    """The largest value over `box` of the plane that the scalar output pulls back to; shape (B,)."""
    _scalar(output)
    start = torch.zeros_like(output[:, 0], dtype=torch.float64 if box.sound else None)
    return maximum(box, pullback(Plane(torch.ones_like(output), start, slopes or {}, middle)))


def maximum(box: Box, plane: Plane) -> Tensor:
    """The largest value of a plane over its box; shape (R,)."""
    middle, radius = plane.of(box.middle), plane.of(box.radius)
    if box.sound:
        slope, middle = plane.slope.double(), middle.double()  # products of float32 numbers are exact here
        slack = positive_sum(slope.abs() * radius + (slope[0].numel() + 64) * 2.0**-52 * (slope * middle).abs())
        return (slope * middle).flatten(1).sum(1) + slack + plane.offset
    return (plane.slope * middle + plane.slope.abs() * radius).flatten(1).sum(1) + plane.offset


def crown_ibp(network: nn.Module, box: Box, slopes: Slopes | None = None) -> Tensor:
    """The CROWN-IBP upper bound of a scalar network over given boxes, differentiable; shape (B,)."""
    output, pullback = relax(network, box, slopes)
    return concretise(box, pullback, output.radius)
