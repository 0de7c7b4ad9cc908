"""The last step of every linear bound: the largest value of a plane over its box."""

import torch
from torch import Tensor

from prood.bounds.box import Box
from prood.bounds.registry import Plane, Pullback, Slopes
from prood.bounds.rounding import positive_sum
from prood.errors import Unsupported


def maximum(box: Box, plane: Plane) -> Tensor:
    """The largest value of a plane over its box, or over the part inside the box's ball; (R,). All bounds end here."""
    bound, ball = _over_box(box, plane), box.within
    if ball is None:
        return bound
    slope = plane.slope.double()
    reach = ball.reach(slope, plane.of(box.lower), plane.of(box.upper), plane.owner)
    return torch.minimum(bound, (_at(slope, plane.of(ball.centre)) + reach + plane.offset).to(bound.dtype))


def _over_box(box: Box, plane: Plane) -> Tensor:
    middle, radius = plane.of(box.middle), plane.of(box.radius)
    if not box.sound:
        return (plane.slope * middle + plane.slope.abs() * radius).flatten(1).sum(1) + plane.offset
    slope, middle = plane.slope.double(), middle.double()
    return _at(slope, middle) + positive_sum(slope.abs() * radius) + plane.offset


def _at(slope: Tensor, point: Tensor) -> Tensor:
    """At least slope·point, in float64."""
    products = slope * point
    return products.flatten(1).sum(1) + positive_sum((slope.shape[1:].numel() + 64) * 2.0**-52 * products.abs())


def concretise(
    box: Box, pullback: Pullback, output: Tensor, *, slopes: Slopes | None = None, middle: bool = False
) -> Tensor:
    """The largest value over `box` of the plane that the scalar output pulls back to; shape (B,)."""
    return maximum(box, pullback(start(output, sound=box.sound, slopes=slopes, middle=middle)))


def start(
    output: Tensor, *, sound: bool, slopes: Slopes | None = None, middle: bool = False, owner: Tensor | None = None
) -> Plane:
    """The plane over a scalar output that is the output itself, a row for each of its rows."""
    scalar(output)
    offset = torch.zeros_like(output[:, 0], dtype=torch.float64 if sound else None)
    return Plane(torch.ones_like(output), offset, slopes or {}, middle, owner)


def scalar(output: Tensor) -> Tensor:
    """One number per row; any other shape would be bounded as a sum, or broadcast."""
    if output.ndim != 2 or output.shape[1] != 1:
        raise Unsupported(f"the network must return one number per image, shape (N, 1), not {tuple(output.shape)}")
    return output.squeeze(1)


def finish(output: Box, bound: Tensor) -> Tensor:
    """No bound where a sum may overflow; in plain arithmetic, none below the value at the image."""
    if output.overflow is not None:
        return torch.where(output.overflow | bound.isnan(), torch.inf, bound)
    return torch.maximum(bound, scalar(output.points))
