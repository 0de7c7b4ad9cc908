"""Planes above the output of the deployed network, pulled back to the image, where their maximum is known.

The deployed network is z' = Wz + b + e in its affine layers, where |e| is bounded by `rounding.errors` for inputs from
the interval; ReLUs are exact. So a plane s·z' + o above some value becomes s·W·z + (o + s·b + |s|·max|e|), and what
float64 loses is paid for in the same place: slopes are off by our rounding, times the largest |z|, which is |s|·own.

For a ReLU on [l, u] with l < 0 < u and a slope s > 0, *any* slope t gives s·relu(z) ≤ t·z + max(−t·l, (s − t)·u), since
the difference is convex and has its maximum at an end; t = s·u/(u − l) is the chord. For s < 0, s·relu(z) ≤ α·s·z for
every α in [0, 1].
"""

from collections.abc import Iterator

import numpy as np

from prood.certification.verify.ball import Ball
from prood.certification.verify.exact import MORE, Array, require, up
from prood.certification.verify.intervals import Enclosure
from prood.certification.verify.layers import ReLU

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
    """Of the lines that take a ReLU's place: its chord under a positive slope, α under a negative one."""
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
            found["flat"][number] = np.zeros(lower.shape)
            found["steep"][number] = np.ones(lower.shape)
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
