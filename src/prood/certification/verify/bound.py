"""Upper bounds of the deployed g over a ball: intervals, then planes with ever better lower lines; each is proven."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from prood.certification.verify.ball import Ball
from prood.certification.verify.exact import Array
from prood.certification.verify.intervals import Enclosure, ceiling, continue_with, intervals
from prood.certification.verify.layers import Linear, Network
from prood.certification.verify.planes import Lines, choices, descend, pull

_VALUES = 2**23  # of slopes at a time


def bounds(network: Network, ball: Ball) -> Iterator[tuple[str, float]]:
    """Ever more work for, perhaps, ever lower bounds of the deployed g over the ball, each with its name; all proven.

    First for sums in any order, then for hidden linear layers that add up in blocks, which the name says. Without
    a mention of blocks, a bound holds for any order.
    """
    # First of all, because these are undecided where the deployed network may overflow: it may say NaN then.
    passes = {"": intervals(network, *ball.box, ball=ball)}
    yield "the last bias", ceiling(network)
    networks = {"": network, ", in blocks": network.in_blocks}
    passes[", in blocks"] = intervals(network.in_blocks, *ball.box, ball=ball)
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
        layer = steps[number].layer
        if not isinstance(layer, Linear):
            continue
        lower, upper = steps[number].outside
        for lines in list(choices(steps, ball).values())[:2]:
            upper = np.minimum(upper, _each(steps[: number + 1], 1.0, lines, ball))
            lower = np.maximum(lower, -_each(steps[: number + 1], -1.0, lines, ball))
        here = replace(steps[number], outside=(lower, upper))
        steps = [*steps[:number], here, *continue_with(network.layers[number + 1 :], (lower, upper))]
    return steps


def _each(steps: list[Enclosure], sign: float, lines: Lines, ball: Ball) -> Array:
    """Upper bounds of sign·z for every output z of the last step, some rows at a time."""
    units = steps[-1].outside[0].size
    largest = max(step.inside[0].size for step in steps)
    rows = max(1, _VALUES // (9 * largest))
    identity = sign * np.eye(units)
    return np.concatenate([pull(steps, identity[i : i + rows], lines, ball) for i in range(0, units, rows)])
