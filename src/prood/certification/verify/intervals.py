"""What the deployed network may return on a box, layer by layer: intervals that cover its rounding and ours."""

from dataclasses import dataclass, replace

import numpy as np

from prood.certification.verify.ball import Ball
from prood.certification.verify.exact import MORE, TINY32, Array, down, require, up
from prood.certification.verify.layers import Affine, Convolution, Layer, Network, Normalise, ReLU
from prood.certification.verify.rounding import Errors, errors


@dataclass(frozen=True, eq=False)
class Enclosure:
    """A layer, the interval of what the deployed network gives to it, and of what it makes of it."""

    layer: Layer
    inside: tuple[Array, Array]
    outside: tuple[Array, Array]
    errors: Errors | None


def enclose(network: Network, lower: Array, upper: Array) -> Enclosure:
    """The last step: its `outside` holds every value that the deployed network may return on the box."""
    return intervals(network.layers, (lower, upper))[-1]


def intervals(layers: tuple[Layer, ...], inside: tuple[Array, Array], ball: Ball | None = None) -> list[Enclosure]:
    """The steps of the deployed layers on a box, or on the part of it that is in `ball`."""
    steps: list[Enclosure] = []
    for number, layer in enumerate(layers):
        if isinstance(layer, ReLU):
            step = Enclosure(layer, inside, (np.maximum(inside[0], 0), np.maximum(inside[1], 0)), None)
        else:
            step = _affine(layer, *inside, reach=_dual(steps, layer, ball) if number == 1 else None)
        steps.append(step)
        inside = step.outside
    return steps


def _affine(layer: Affine, lower: Array, upper: Array, reach: Array | None = None) -> Enclosure:
    wrong = errors(layer, lower, upper)
    centre = (lower + upper) / 2
    radius = up(np.maximum(upper - centre, centre - lower))
    middle = layer.map(centre[None])[0] + layer.bias
    around = MORE * layer.map(radius[None], "absolute")[0]
    if reach is not None:
        around = np.minimum(around, reach)
    above = MORE * (around + wrong.deployed + wrong.own)
    below = MORE * (above + wrong.spread)
    return Enclosure(layer, (lower, upper), (require(down(middle - below)), require(up(middle + above))), wrong)


def _dual(steps: list[Enclosure], layer: Affine, ball: Ball | None) -> Array | None:
    """How far Wz may move for z = (u − mean)/std + e, u in an ℓ2 or ℓ1 ball that is smaller than its box.

    By Hölder: eps·‖W/std‖ in the dual norm, plus |W||e|. The box's centre is not the image, unless the ball stays away
    from 0 and 1, so the distance between the two counts as well.
    """
    first = steps[0]
    if ball is None or ball.norm == "linf" or not isinstance(layer, Convolution):
        return None
    if not isinstance(first.layer, Normalise) or first.errors is None:
        return None
    scale = np.broadcast_to(1 / first.layer.std, first.layer.inside)[None]
    if ball.norm == "l2":
        norm = np.sqrt(MORE * replace(layer, weight=layer.weight**2).map(scale**2)[0])
    else:
        norm = np.broadcast_to(np.abs(layer.weight).max((1, 2, 3))[:, None, None] * scale.max(), layer.outside)
    lower, upper = first.outside
    at_image = (ball.centre - first.layer.mean) / first.layer.std
    away = up(np.abs((lower + upper) / 2 - at_image)) + first.errors.deployed + 2 * first.errors.own
    return np.asarray(MORE * (norm * ball.eps + layer.map(away[None], "absolute")[0]))


def ceiling(network: Network) -> float:
    """The last bias: adding terms ≤ 0 to it cannot raise it, as rounding is monotone; a subnormal may become 0."""
    bias = float(network.last.offsets[0])
    return max(bias, 0.0) if abs(bias) < TINY32 else bias
