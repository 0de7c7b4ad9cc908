"""What the deployed g returns on a ball: at most, by planes above it, and at least, by a point that a search finds.

A plane is pulled back to the image, where its maximum is known. The deployed network is z' = Wz + b + e in its affine
layers, where |e| is bounded by `rounding.errors` for inputs from the interval; ReLUs are exact. So a plane s·z' + o
above some value becomes s·W·z + (o + s·b + |s|·max|e|), and what float64 loses is paid for in the same place: slopes
are off by our rounding, times the largest |z|, which is |s|·own.

For a ReLU on [l, u] with l < 0 < u and a slope s > 0, *any* slope t gives s·relu(z) ≤ t·z + max(−t·l, (s − t)·u), since
the difference is convex and has its maximum at an end; t = s·u/(u − l) is the chord. For s < 0, s·relu(z) ≤ α·s·z for
every α in [0, 1].
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from prood.certification.verify.ball import Ball
from prood.certification.verify.exact import MORE, Array, require, up
from prood.certification.verify.layers import Linear, Network, ReLU
from prood.certification.verify.rounding import Enclosure, ceiling, intervals

N = TypeVar("N")
Lines = dict[int, Array]
"""The α of each ReLU, by the number of its step; used where the sign of its input is open."""


def pull(
    steps: list[Enclosure], slope: Array, lines: Lines, ball: Ball, trace: dict[int, Array] | None = None
) -> Array:
    """For each row s: ≥ s·z for every value z that the deployed steps may return on the ball.

    `trace` receives the slopes above each step, and, as number −1, those above the image.
    """
    offset = np.zeros(len(slope))
    for number in reversed(range(len(steps))):
        step = steps[number]
        if trace is not None:
            trace[number] = slope
        if isinstance(step.layer, ReLU):
            slope, added = _relu(slope, *step.inside, lines[number])
            offset = up(offset + added)
        else:
            assert step.errors is not None
            flat, size = slope.reshape(len(slope), -1), np.abs(slope).reshape(len(slope), -1)
            constant = flat @ step.layer.bias.ravel()
            lost = MORE * (size @ (step.errors.deployed + step.errors.own).ravel()) + 2.0**-700
            offset = up(up(offset + constant) + lost)
            slope = step.layer.adjoint(slope)
    if trace is not None:
        trace[-1] = slope
    return require(up(ball.maximum(require(slope)) + offset))


def _relu(slope: Array, lower: Array, upper: Array, line: Array) -> tuple[Array, Array]:
    slope = slope.reshape(len(slope), *lower.shape)
    unstable = (lower < 0) & (upper > 0)
    pulled = slope * _slopes(slope, lower, upper, line)
    height = np.maximum(up(-pulled * lower), up((slope - pulled) * upper))
    height = np.where(unstable & (slope > 0), np.maximum(height, 0), 0)
    return pulled, MORE * height.reshape(len(slope), -1).sum(1)


def _slopes(slope: Array, lower: Array, upper: Array, line: Array) -> Array:
    """Slopes of the lines that replace a ReLU: its chord under a positive slope, α under a negative one."""
    unstable = (lower < 0) & (upper > 0)
    chord = np.where(unstable, upper / np.where(unstable, upper - lower, 1), upper > 0)
    return np.where(slope > 0, chord, np.where(unstable, line, upper > 0))


def choices(steps: list[Enclosure], ball: Ball) -> dict[str, Lines]:
    """Ways to choose the lower lines: as at the image, as at the middle of the interval, all flat, all steep."""
    found: dict[str, Lines] = {"image": {}, "middle": {}, "flat": {}, "steep": {}}
    value = ball.centre[None]
    for number, step in enumerate(steps):
        if isinstance(step.layer, ReLU):
            lower, upper = step.inside
            value = value.reshape(1, *lower.shape)
            found["image"][number] = (value[0] > 0).astype(np.float64)
            found["middle"][number] = (lower + upper > 0).astype(np.float64)
            found["flat"][number], found["steep"][number] = np.zeros(lower.shape), np.ones(lower.shape)
            value = np.maximum(value, 0)
        else:
            value = step.layer.map(value) + step.layer.bias
    return found


def descend(steps: list[Enclosure], lines: Lines, ball: Ball, count: int = 30) -> Iterator[float]:
    """Bounds with α that are moved against the gradient of the bound.

    It is convex in the α of one ReLU. Its derivative is the slope above that ReLU times the value below it, where
    values are those of the network of lines at the highest point of the plane. Each bound is proven, wherever the α
    came from.
    """
    lines = dict(lines)
    for number in range(count):
        trace: dict[int, Array] = {}
        yield float(pull(steps, np.ones((1, 1)), lines, ball, trace)[0])
        value = ball.furthest(trace[-1][0])[None]
        for place, step in enumerate(steps):
            if not isinstance(step.layer, ReLU):
                value = step.layer.map(value) + step.layer.bias
                continue
            (lower, upper), slope = step.inside, trace[place].reshape(1, *step.inside[0].shape)
            gradient = (np.minimum(slope, 0) * value)[0]
            line = _slopes(slope, lower, upper, lines[place])
            value = line * value - np.where((slope > 0) & (lower < 0), line * lower, 0)
            largest = float(np.abs(gradient).max())
            if largest > 0:
                # Half of the step in the gradient's own scale: between its sign alone and its length.
                change = np.sign(gradient) * np.sqrt(np.abs(gradient) / largest)
                lines[place] = np.clip(lines[place] - 0.5 * 0.9**number * change, 0, 1)


def bounds(network: Network, ball: Ball) -> Iterator[tuple[str, float]]:
    """Ever more work for, perhaps, ever lower bounds of the deployed g over the ball, each with its name; all proven.

    First for sums in any order, then for hidden linear layers that add up in blocks, which the name says. Without
    a mention of blocks, a bound holds for any order.
    """
    # First of all, because these are undecided where the deployed network may overflow: it may say NaN then.
    steps = intervals(network.layers, ball.box, ball)
    yield "the last bias", ceiling(network)
    blocked = network.in_blocks
    passes = {"": (network, steps), ", in blocks": (blocked, intervals(blocked.layers, ball.box, ball))}
    for tightened in ("", ", tightened"):
        for word, (one, steps) in passes.items():
            for name, bound in _bounds(tighten(one, steps, ball) if tightened else steps, ball):
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
    rows = max(1, 2**23 // (9 * max(step.inside[0].size for step in steps)))  # so that their slopes fit in memory
    parts = [identity[start : start + rows] for start in range(0, len(identity), rows)]
    return np.concatenate([pull(steps, part, lines, ball) for part in parts])


class Point(NamedTuple):
    """A float32 image in the ball, and a value that the deployed network reaches or exceeds there in any order."""

    image: NDArray[np.float32]
    value: float


def least(network: Network, image: Array) -> float:
    """What the deployed network reaches or exceeds at this float32 image, in any order."""
    return float(intervals(network.layers, (image, image))[-1].outside[0][0])


def gradient(network: Network, image: Array) -> Array:
    """A bound on g without rounding. Where all units below a ReLU are off, it looks through it."""
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


def highest(
    network: N,
    ball: Ball,
    goal: float,
    *,
    least: Callable[[N, Array], float] = least,  # type: ignore[assignment]  # those of a `Network`
    steepest: Callable[[N, Array], Array] = gradient,  # type: ignore[assignment]
) -> Point | None:
    """The best point found; the search ends with one above `goal`.

    Frank and Wolfe: where the gradient at a point says that the ball is highest, and on the way there. The way is
    found in plain float64; what counts is the enclosure at the float32 point, and that it lies in the ball is exact.
    """
    best: Point | None = None
    place = ball.centre
    tried = [place]
    for number in range(30):
        for candidate in tried:
            point = ball.inside(candidate)
            if point is None:
                continue
            value = least(network, point.astype(np.float64))
            if best is None or value > best.value:
                best = Point(point, value)
            if best.value > goal:
                return best
        target = ball.furthest(steepest(network, place))
        place = place + 2 / (number + 2) * (target - place)
        tried = [target, place]
    return best
