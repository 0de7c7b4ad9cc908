"""How far the deployed float32 network is from exact arithmetic, layer by layer, and what it may return on a box.

**Lemma.** Let a sum of n products wᵢxᵢ and a bias b be computed in float32 with unit u = 2⁻²⁴, the additions in any
order (any binary tree), each with or without a fused product. Let P and N be the sums of its positive terms and of its
negative ones' magnitudes, S = Σ|wᵢxᵢ|. Unless something overflows, the result is off by at most

    L = (n·u·max(P, N) + u·S + η) / (1 − n·u),

where η is what underflow may cost. *Proof.* Let L be the sum of the magnitudes of all local errors; the error of every
partial sum is at most L, as exact addition passes errors on unchanged. A product's local error is at most u·|wᵢxᵢ|, in
all u·S. A partial sum without errors is a sum of some of the terms, hence in [−N, P]; with them it is at most
max(P, N) + L in magnitude, and rounding it costs u times that. There are n additions: n + 1 terms in a tree. Adding an
exact zero is exact, so terms that are zero for certain do not count. Thus L ≤ n·u·(max(P, N) + L) + u·S + η. ∎

η: each of the n products, n sums and the bias may be flushed to zero or, being subnormal, be rounded absolutely (at
most 2⁻¹²⁶ each), and so may each operand, which costs |wᵢ|·2⁻¹²⁶ or |xᵢ|·2⁻¹²⁶. A last weight −exp(h) that is subnormal
costs up to |xᵢ|·2⁻¹²⁴. We pay 2⁻¹²³·(Σ|wᵢ| + Σ|xᵢ| + 2n + 2).

**In blocks.** If the order is known to be such that the products of a block k are added up first, n_k of them (n_k − 1
additions), and then the B blocks and the bias, block k is off by

    L_k = ((n_k − 1)·u·max(P_k, N_k) + u·S_k + η_k) / (1 − n_k·u),

and the same argument about the B additions of the second stage, whose partial sums are at most max(P, N) + ΣL_k in
magnitude plus their own errors, gives L = ΣL_k + (B·u·(max(P, N) + ΣL_k) + η)/(1 − B·u).

**A mean** of m values: a factor that is a power of two commutes with rounding, so the lemma covers m = 4, 16, 64. Else
the sum may be divided by m, which is one rounding more; or multiplied with a rounded 1/m, which is two more; or each
value is, so that a product is off by 2.1·u·|wᵢxᵢ|. As S ≤ 2·max(P, N), n + 3 in place of n pays for any of these.

The lemma without blocks covers sums over blocks, too. It does not cover algorithms other than sums of these products
(Winograd, FFT), nor TF32.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from prood.certification.verify.ball import Ball
from prood.certification.verify.exact import LARGE32, MORE, TINY32, U32, Array, Undecided, down, require, slack, up
from prood.certification.verify.layers import Affine, Convolution, Layer, Linear, Network, Normalise, Pool, ReLU


class Errors(NamedTuple):
    """For inputs between two arrays: bounds for each output of the layer, without the row axis."""

    deployed: Array  # |the deployed value − the exact affine map| with the weights that `Linear.spread` leaves open
    own: Array  # what our float64 may lose in computing the map, or in pulling a slope of 1 back through it
    spread: Array  # how far below the map with weights W the one with the deployed weights may be


def errors(layer: Affine, lower: Array, upper: Array) -> Errors:
    """The error of a layer whose input lies between `lower` and `upper`."""
    largest = np.maximum(np.abs(lower), np.abs(upper))
    rows = slack(max(lower.size, int(np.prod(layer.outside))))
    if isinstance(layer, Normalise):
        return _normalise(layer, largest, np.maximum(np.abs(lower - layer.mean), np.abs(upper - layer.mean)), rows)
    above, below = np.maximum(upper, 0), np.maximum(-lower, 0)
    nonzero = (largest > 0).astype(np.float64)
    bias = np.abs(layer.bias)
    grown = 1 + layer.spread if isinstance(layer, Linear) else 1.0
    total, both, weights = layer.map(np.stack([largest, above + below, nonzero]), "absolute")
    count, inputs = layer.map(np.stack([nonzero, largest]), "pattern")
    if isinstance(layer, Pool) and layer.side & (layer.side - 1):
        count = count + 3
    difference = layer.map((above - below)[None])[0] + layer.bias
    # max(P, N) = (P + N + |P − N|)/2; the first of them is at least a half of P + N, so rounding stays relative.
    partial = grown * MORE * (both + bias + np.abs(difference)) / 2
    if count.max(initial=0) >= 2**22:
        raise Undecided("too large: a sum has more than four million terms")
    underflow = 8 * TINY32 * (weights + inputs + 2 * count + 2)
    deployed = MORE * (count * U32 * partial + U32 * grown * total + underflow) / (1 - count * U32)
    if isinstance(layer, Linear) and layer.block:
        deployed = np.minimum(deployed, _in_blocks(layer, above, below, partial))
    # A pool may add its values before it divides.
    if ((layer.side**2 if isinstance(layer, Pool) else 1) * (partial + deployed)).max() >= LARGE32:
        raise Undecided("the deployed network may overflow float32 in this ball")
    return Errors(require(deployed), require(MORE * rows * (total + bias)), MORE * (grown - 1) * total)


def _in_blocks(layer: Linear, above: Array, below: Array, partial: Array) -> Array:
    weight = layer.weight.reshape(len(layer.weight), -1, layer.block)
    above, below = above.reshape(weight.shape[1:]), below.reshape(weight.shape[1:])
    largest = np.maximum(above, below)
    absolute, live = np.abs(weight), (weight != 0) & (largest > 0)
    sums = functools.partial(np.einsum, "obs,bs->ob")  # of weights and values, a block each
    count = live.sum(2).astype(np.float64)
    within = MORE * (sums(absolute, above + below) + np.abs(sums(weight, above - below))) / 2
    underflow = 8 * TINY32 * ((absolute + largest).sum(2) + 2 * count)
    additions = np.maximum(count - 1, 0) * U32
    lost = MORE * (additions * within + U32 * sums(absolute, largest) + underflow) / (1 - count * U32)
    lost = MORE * lost.sum(1)
    blocks = (count > 0).sum(1).astype(np.float64)
    again = (blocks * U32 * (partial + lost) + 8 * TINY32 * (2 * blocks + 2)) / (1 - blocks * U32)
    return np.asarray(MORE * (lost + again))


def _normalise(layer: Normalise, largest: Array, distance: Array, rows: float) -> Errors:
    """(x − mean)/std: two roundings, (1 + u)² − 1 < 2.1u, and flushed operands and results."""
    quotient = distance / layer.std
    deployed = MORE * (2.1 * U32 * quotient + 8 * TINY32 * (1 + 1 / layer.std))
    if max(distance.max(), quotient.max()) >= LARGE32:
        raise Undecided("the normalised image may overflow float32")
    return Errors(deployed, require(MORE * rows * (largest + np.abs(layer.mean)) / layer.std), np.zeros(layer.outside))


@dataclass(frozen=True, eq=False)
class Enclosure:
    """A layer, the interval of its inputs in the deployed network, and of its outputs."""

    layer: Layer
    inside: tuple[Array, Array]
    outside: tuple[Array, Array]
    errors: Errors | None


def intervals(layers: tuple[Layer, ...], inside: tuple[Array, Array], ball: Ball | None = None) -> list[Enclosure]:
    """The steps of the deployed layers on a box, or on its part in `ball`; the last one holds all that may come out."""
    steps: list[Enclosure] = []
    for layer in layers:
        (lower, upper), wrong = inside, None
        if isinstance(layer, ReLU):
            outside = np.maximum(lower, 0), np.maximum(upper, 0)
        else:
            wrong = errors(layer, lower, upper)
            centre = (lower + upper) / 2
            radius = up(np.maximum(upper - centre, centre - lower))
            middle = layer.map(centre[None])[0] + layer.bias
            around = MORE * layer.map(radius[None], "absolute")[0]
            above = MORE * (around + wrong.deployed + wrong.own)
            below = MORE * (above + wrong.spread)
            outside = require(down(middle - below)), require(up(middle + above))
            if ball is not None and (found := _dual(steps, layer, ball)) is not None:
                value, moved = found
                reach = MORE * (moved + wrong.deployed + 2 * wrong.own)
                outside = np.maximum(outside[0], down(value - reach)), np.minimum(outside[1], up(value + reach))
        steps.append(Enclosure(layer, inside, outside, wrong))
        inside = outside
    return steps


def _dual(before: list[Enclosure], layer: Affine, ball: Ball) -> tuple[Array, Array] | None:
    """Wz + b at the image, and how far Wz may move from there, for z = A(u − mean)/std + e with u in an ℓ2 or ℓ1 ball.

    A are means of squares of pixels, side by side: their rows have the dual norm 1/side (ℓ2) or 1/side² (ℓ1), and no
    pixel in common. So Wz moves by eps·‖W/std‖ in the dual norm, by Hölder, times these, plus |W||e|. None where it
    would be no smaller than the box around the ball, or is not known.
    """
    normalise = before[0].layer if before else None
    means = all(isinstance(step.layer, Pool) for step in before[1:])
    if ball.norm == "linf" or not means or not isinstance(normalise, Normalise):
        return None
    sides = [one.side for one in (*(step.layer for step in before), layer) if isinstance(one, Pool)]
    share = 1 / math.prod(sides) ** (1 if ball.norm == "l2" else 2)
    scale = (1 / normalise.std).reshape(-1)
    if isinstance(layer, Pool):
        norm = np.broadcast_to(scale[:, None, None], layer.outside)
    elif not isinstance(layer, Convolution):
        return None
    elif ball.norm == "l2":
        squares = np.broadcast_to(scale[:, None, None] ** 2, layer.inside)[None]
        norm = np.sqrt(MORE * replace(layer, weight=layer.weight**2).map(squares)[0])
    else:
        steep = (np.abs(layer.weight) * scale[:, None, None]).max((1, 2, 3))
        norm = np.broadcast_to(steep[:, None, None], layer.outside)
    at_image, wrong = ball.centre[None], np.zeros(normalise.inside)
    for step in before:
        assert isinstance(step.layer, Affine)
        assert step.errors is not None
        at_image = step.layer.map(at_image) + step.layer.bias
        wrong = MORE * (step.layer.map(wrong[None], "absolute")[0] + step.errors.deployed + 2 * step.errors.own)
    value = layer.map(at_image)[0] + layer.bias
    return value, np.asarray(MORE * (share * norm * ball.eps + layer.map(wrong[None], "absolute")[0]))


def ceiling(network: Network) -> float:
    """The last bias: adding terms ≤ 0 to it cannot raise it, as rounding is monotone; a subnormal may become 0."""
    last = network.layers[-1]
    assert isinstance(last, Linear)
    bias = float(last.offsets[0])
    return max(bias, 0.0) if abs(bias) < TINY32 else bias
