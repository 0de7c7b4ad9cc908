"""What the deployed g returns on a ball: at most, by intervals and by planes with ever better lower lines, all proven;
and at least, by a point that a short search finds.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prood.certification.verify.ball import Ball
from prood.certification.verify.exact import Array
from prood.certification.verify.intervals import Enclosure, ceiling, enclose, intervals
from prood.certification.verify.layers import Linear, Network, ReLU
from prood.certification.verify.planes import Lines, choices, descend, pull

_VALUES = 2**23  # of slopes at a time
_STEPS = 30  # of the search


def bounds(network: Network, ball: Ball) -> Iterator[tuple[str, float]]:
    """Ever more work for, perhaps, ever lower bounds of the deployed g over the ball, each with its name; all proven.

    First for sums in any order, then for hidden linear layers that add up in blocks, which the name says. Without
    a mention of blocks, a bound holds for any order.
    """
    networks = {"": network, ", in blocks": network.in_blocks}
    # First of all, because these are undecided where the deployed network may overflow: it may say NaN then.
    passes = {"": intervals(network.layers, ball.box, ball)}
    yield "the last bias", ceiling(network)
    passes[", in blocks"] = intervals(networks[", in blocks"].layers, ball.box, ball)
    for tightened in ("", ", tightened"):
        for word, one in networks.items():
            if tightened:
                passes[word] = tighten(one, passes[word], ball)
            for name, bound in _bounds(passes[word], ball):
                yield f"{name}{word}{tightened}", bound


def _bounds(steps: list[Enclosure], ball: Ball) -> Iterator[tuple[str, float]]:
    yield "intervals", float(steps[-1].outside[1][0])
    name, best, lowest = "", {}, np.inf
    for choice, lines in choices(steps, ball).items():
        bound = float(pull(steps, np.ones((1, 1)), lines, ball)[0])
        yield f"a plane ({choice})", bound
        if bound < lowest:
            name, best, lowest = choice, lines, bound
    for bound in descend(steps, best, ball):
        yield f"a plane ({name}, improved)", bound


def tighten(network: Network, steps: list[Enclosure], ball: Ball) -> list[Enclosure]:
    """The same steps, where the outputs of each hidden linear layer are bounded by planes of their own."""
    for number in range(len(steps) - 1):
        if not isinstance(steps[number].layer, Linear):
            continue
        lower, upper = steps[number].outside
        for lines in list(choices(steps, ball).values())[:2]:
            upper = np.minimum(upper, _each(steps[: number + 1], 1.0, lines, ball))
            lower = np.maximum(lower, -_each(steps[: number + 1], -1.0, lines, ball))
        here = replace(steps[number], outside=(lower, upper))
        steps = [*steps[:number], here, *intervals(network.layers[number + 1 :], here.outside)]
    return steps


def _each(steps: list[Enclosure], sign: float, lines: Lines, ball: Ball) -> Array:
    """Upper bounds of sign·z for every output z of the last step, some rows at a time."""
    identity = sign * np.eye(steps[-1].outside[0].size)
    rows = max(1, _VALUES // (9 * max(step.inside[0].size for step in steps)))
    parts = [identity[start : start + rows] for start in range(0, len(identity), rows)]
    return np.concatenate([pull(steps, part, lines, ball) for part in parts])


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
    place = ball.centre
    tried = [place]
    for number in range(_STEPS):
        for candidate in tried:
            point = ball.inside(candidate)
            if point is None:
                continue
            exact = point.astype(np.float64)
            value = float(enclose(network, exact, exact).outside[0][0])
            if best is None or value > best.value:
                best = Point(point, value)
            if best.value > goal:
                return best
        target = ball.furthest(gradient(network, place))
        place = place + 2 / (number + 2) * (target - place)
        tried = [target, place]
    return best


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
    return np.asarray(slope[0])
