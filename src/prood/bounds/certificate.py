"""Upper bounds of a scalar network over a ball: by intervals, by CROWN-IBP, or the smaller of the two."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from prood.bounds.box import Box
from prood.bounds.registry import NoLinearRule, Plane, Pullback, Slopes, interval, relax
from prood.errors import ProodError

Method = Literal["best", "crown-ibp", "ibp"]


def upper_bound(
    network: nn.Module,
    images: Tensor,
    eps: float | Tensor,
    *,
    method: Method = "best",
    clip: tuple[float, float] | None = (0.0, 1.0),
) -> Tensor:
    """b with network(u) ≤ b for every u with ‖u − x‖∞ ≤ eps inside `clip`, per image; shape (N,).

    `network` maps a batch to one number per image, shape (N, 1). "ibp" passes a box forwards (Eq. 6);
    "crown-ibp" takes those boxes as pre-activation bounds and passes one linear relaxation backwards; "best" is
    the smaller of the two, or the interval bound alone where a layer has no linear rule. The arithmetic is
    that of the tensors: rounding errors are not accounted for, except that the bound is never below the network's own
    value at the image.
    """
    if method not in get_args(Method):
        raise ProodError(f"unknown bound method {method!r}: choose one of {', '.join(get_args(Method))}")
    if not torch.as_tensor(eps).ge(0).all():
        raise ProodError("eps is a radius: it must not be negative or NaN")
    anchors = images if clip is None else images.clamp(*clip)
    box = replace(Box.ball(images, eps, clip=clip, points=anchors), anchored=True)
    try:
        output, pullback = (interval(network, box), None) if method == "ibp" else relax(network, box)
    except NoLinearRule:
        if method == "crown-ibp":
            raise
        output, pullback = interval(network, box), None
    bound = _scalar(output.upper)
    if pullback is not None:
        # Neither choice of the lower slopes wins always: for small radii that of the image, for large ones the middle.
        anchored = concretise(box, pullback, output.radius)
        linear = torch.minimum(anchored, crown_ibp(network, Box(box.middle, box.radius)))
        bound = linear if method == "crown-ibp" else torch.minimum(linear, bound)
    return torch.maximum(bound, _scalar(output.points))


def _scalar(output: Tensor) -> Tensor:
    """One number per row; any other shape would be bounded as a sum, or broadcast."""
    if output.ndim != 2 or output.shape[1] != 1:
        raise ProodError(f"the network must return one number per image, shape (N, 1), not {tuple(output.shape)}")
    return output.squeeze(1)


def concretise(box: Box, pullback: Pullback, output: Tensor) -> Tensor:
    """The largest value over `box` of the plane that the scalar output pulls back to; shape (B,)."""
    _scalar(output)
    plane = pullback(Plane(torch.ones_like(output), torch.zeros_like(output[:, 0])))
    return (plane.slope * box.middle + plane.slope.abs() * box.radius).flatten(1).sum(1) + plane.offset


def crown_ibp(network: nn.Module, box: Box, slopes: Slopes | None = None) -> Tensor:
    """The CROWN-IBP upper bound of a scalar network over given boxes, differentiable; shape (B,)."""
    output, pullback = relax(network, box, slopes)
    return concretise(box, pullback, output.radius)
