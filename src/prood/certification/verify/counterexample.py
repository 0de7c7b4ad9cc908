"""A point of the ball where the deployed network is certainly above the bound, if a short search finds one."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prood.certification.verify.ball import Ball
from prood.certification.verify.exact import Array
from prood.certification.verify.intervals import enclose
from prood.certification.verify.layers import Network, ReLU

STEPS = 30


class Point(NamedTuple):
    """A float32 image in the ball, and a value that the deployed network reaches or exceeds there in any order."""

    image: NDArray[np.float32]
    value: float


def highest(network: Network, ball: Ball, goal: float) -> Point | None:
    """The best point found; the search ends with one above `goal`.

    Frank and Wolfe: where the gradient at a point says that the ball is highest, and on the way there. The way is
    found in plain float64; what counts is the enclosure at the float32 point, and that it lies in the ball is exact.
    """
    best: Point | None = None
    place = ball.image.astype(np.float64)
    tried = [place]
    for number in range(STEPS):
        for candidate in tried:
            best = _better(best, _rigorous(network, ball, candidate))
            if best is not None and best.value > goal:
                return best
        target = ball.furthest(gradient(network, place))
        place = place + 2 / (number + 2) * (target - place)
        tried = [target, place]
    return best


def _rigorous(network: Network, ball: Ball, place: Array) -> Point | None:
    point = ball.inside(place)
    if point is None:
        return None
    exact = point.astype(np.float64)
    return Point(point, float(enclose(network, exact, exact).outside[0][0]))


def _better(one: Point | None, other: Point | None) -> Point | None:
    if one is None or other is None:
        return one if other is None else other
    return other if other.value > one.value else one


def gradient(network: Network, image: Array) -> Array:
    """Of g without rounding. Where all units below a ReLU are off, it looks through it."""
    value, masks = image[None], []
    for layer in network.layers:
        if isinstance(layer, ReLU):
            on = (value > 0).astype(np.float64)
            masks.append(on if on.any() else np.ones_like(on))
            value = np.maximum(value, 0)
        else:
            value = layer.map(value) + layer.bias
    slope = np.ones((1, 1))
    for layer in reversed(network.layers):
        slope = slope.reshape(masks[-1].shape) * masks.pop() if isinstance(layer, ReLU) else layer.adjoint(slope)
    found: Array = slope[0]
    return found
