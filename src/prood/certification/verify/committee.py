"""A committee's g: the least of its members', each on the common scale, and rounded to float32.

A bound of one member is a bound of all: gᵢ ≤ b is a float32 number, its scale does not fall, and neither rounding to
float32 nor the minimum changes an order. A member that may overflow could say NaN, and so could all: then nothing is
decided.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from prood.certification.verify import bound
from prood.certification.verify.ball import Ball
from prood.certification.verify.bound import Point
from prood.certification.verify.exact import TINY32, Array
from prood.certification.verify.gate import Rising
from prood.certification.verify.layers import Network, ReLU


@dataclass(frozen=True, eq=False)
class Committee:
    """Networks for the same images, each with its scale."""

    members: tuple[tuple[Network, Rising], ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.members[0][0].shape


Discriminator = Network | Committee


def bounds(g: Discriminator, ball: Ball) -> Iterator[tuple[str, float]]:
    """Ever more work for lower bounds of the deployed g over the ball, the members in turn."""
    if isinstance(g, Network):
        yield from bound.bounds(g, ball)
        return
    waiting = [(f"member {number}", one[1], bound.bounds(one[0], ball)) for number, one in enumerate(g.members, 1)]
    first = [(f"{name} of {who}", scale, value) for who, scale, way in waiting for name, value in [next(way)]]
    for name, scale, value in first:  # once all members are known not to overflow
        yield name, _scaled(scale, value)[1]
    while waiting:
        for turn in list(waiting):
            who, scale, way = turn
            found = next(way, None)
            if found is None:
                waiting.remove(turn)
            else:
                yield f"{found[0]} of {who}", _scaled(scale, found[1])[1]


def highest(g: Discriminator, ball: Ball, goal: float) -> Point | None:
    """The best point found, as `bound.highest` finds it; of a committee along the gradient of the least member."""
    if isinstance(g, Network):
        return bound.highest(g, ball, goal)
    return bound.highest(g, ball, goal, least=_least, steepest=_steepest)


def _scaled(scale: Rising, value: float) -> tuple[float, float]:
    """The lowest and the highest float32 that the scale may give for the value; what may be flushed to 0 is 0."""
    low, high = (float(np.float32(one)) for one in scale(0.0 if -TINY32 < value < 0 else value))
    return low, 0.0 if -TINY32 < high < 0 else high


def _least(g: Committee, image: Array) -> float:
    return min(_scaled(scale, bound.least(network, image))[0] for network, scale in g.members)


def _steepest(g: Committee, image: Array) -> Array:
    return bound.gradient(min(g.members, key=lambda one: sum(one[1](_value(one[0], image))))[0], image)


def _value(network: Network, image: Array) -> float:
    """g without rounding."""
    value = image[None]
    for layer in network.layers:
        value = np.maximum(value, 0) if isinstance(layer, ReLU) else layer.map(value) + layer.bias
    return float(value.reshape(()))
