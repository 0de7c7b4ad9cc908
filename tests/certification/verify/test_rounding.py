"""The lemma against exact rational arithmetic: no order of summation leaves what it allows."""

from fractions import Fraction

import numpy as np
import pytest

from prood import bounds
from prood.certification.verify.exact import EXP_ULPS, SPREAD, Undecided, flint, least_exponentials
from prood.certification.verify.layers import Linear, Network, Normalise, Pool
from prood.certification.verify.rounding import errors, intervals


def exact(weights, inputs, bias) -> list[Fraction]:
    return [
        sum((Fraction(w) * Fraction(x) for w, x in zip(row.tolist(), inputs.tolist(), strict=True)), Fraction(b))
        for row, b in zip(weights, bias.tolist(), strict=True)
    ]


@pytest.mark.parametrize("size", [1, 2, 9, 100, 1000])
@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-3, 1.0, 1e10, 1e20])
def test_a_float32_sum_is_as_close_as_the_lemma_says(summed, size, scale):
    rng = np.random.default_rng(size)
    weights = (rng.normal(size=(4, size)) * scale).astype(np.float32)
    weights[1] = np.abs(weights[1])  # without cancellation the partial sums are largest
    weights[2, : size // 2] = 0
    inputs = (rng.random(size) * rng.choice([1e-20, 1e-3, 1.0, 1e8], size)).astype(np.float32)
    bias = (rng.normal(size=4) * scale).astype(np.float32)
    layer = Linear((size,), (4,), weights.astype(np.float64), bias.astype(np.float64))
    allowed = errors(layer, inputs.astype(np.float64), inputs.astype(np.float64)).deployed
    truth = exact(weights, inputs, bias)
    for order, values in summed(weights, np.tile(inputs, (4, 1)), bias).items():
        for value, right, room in zip(values.tolist(), truth, allowed.tolist(), strict=True):
            assert abs(Fraction(value) - right) <= Fraction(room), order


def test_the_lemma_is_not_idle(summed):
    """Equal terms one after the other lose a good part of what it allows."""
    size = 4096
    weights, inputs = np.full((1, size), np.float32(1 / 3)), np.full(size, np.float32(0.7))
    bias = np.zeros(1, np.float32)
    layer = Linear((size,), (1,), weights.astype(np.float64), np.zeros(1))
    allowed = errors(layer, inputs.astype(np.float64), inputs.astype(np.float64)).deployed[0]
    value = summed(weights, inputs[None], bias)["sequential"][0]
    assert allowed / 30 < abs(Fraction(float(value)) - exact(weights, inputs, bias)[0]) < allowed


def test_the_rounding_of_the_products_counts():
    """One product and a bias just above 1: both roundings may be of full size, and of one sign."""
    rng = np.random.default_rng(0)
    weights, bias = (1 + rng.random((2, 20000)) / 50).astype(np.float32)
    x = np.float32(1.003)
    layer = Linear((1,), (20000,), weights.astype(np.float64)[:, None], bias.astype(np.float64))
    allowed = errors(layer, np.full(1, float(x)), np.full(1, float(x))).deployed
    right = weights.astype(np.float64) * float(x) + bias  # exact in float64, or off by 2⁻⁵²
    wrong = np.abs((weights * x + bias).astype(np.float64) - right)
    assert (wrong <= allowed).all()
    assert (wrong > 2.0**-24 * right * 1.2).any()  # more than the sum's own rounding


def test_a_long_block_rounds_as_a_sum():
    """All products but those of one block are zero."""
    weights = np.zeros((1, 4096), np.float32)
    weights[0, :64] = 1 / 3
    inputs = np.full(4096, np.float32(0.7))
    whole = Linear((4096,), (1,), weights.astype(np.float64), np.zeros(1))
    layer = Network((whole,)).in_blocks.layers[0]
    allowed = errors(layer, inputs.astype(np.float64), inputs.astype(np.float64)).deployed[0]
    value = np.add.accumulate(weights[0, :64] * inputs[:64], dtype=np.float32)[-1]
    wrong = abs(Fraction(float(value)) - exact(weights, inputs, np.zeros(1))[0])
    assert 3 * Fraction(2) ** -24 * Fraction(float(value)) < wrong <= allowed


def test_the_last_weights_may_be_anywhere_in_their_spread():
    least = least_exponentials(np.array([[0.3]], np.float32))
    layer = Linear((1,), (1,), -least, np.zeros(1), SPREAD)
    lower, upper = intervals((layer,), (np.ones(1), np.ones(1)))[-1].outside
    assert lower[0] <= -least[0, 0] * (1 + SPREAD)
    assert upper[0] >= -least[0, 0]
    assert upper[0] - lower[0] < 3 * SPREAD


@pytest.mark.parametrize("size", [1, 7, 36, 144, 1000])
def test_sums_in_blocks_round_less(summed, size):
    rng = np.random.default_rng(size)
    weights = rng.normal(size=(4, size)).astype(np.float32)
    weights[1], weights[2, 5:] = np.abs(weights[1]), 0
    inputs, bias = rng.random(size).astype(np.float32), rng.normal(size=4).astype(np.float32)
    inputs[rng.random(size) < 0.3] = 0
    whole = Linear((size,), (4,), weights.astype(np.float64), bias.astype(np.float64))
    layer = Network((whole,)).in_blocks.layers[0]
    assert layer.block == bounds.BlockedLinear(size, 4).block
    wide = inputs.astype(np.float64)
    allowed = errors(layer, wide, wide).deployed
    assert (allowed <= errors(whole, wide, wide).deployed).all()
    if size == 1000:
        assert allowed[1] < errors(whole, wide, wide).deployed[1] / 8
    parts = [slice(start, start + layer.block) for start in range(0, size, layer.block)]
    zero, ones = np.zeros(4, np.float32), np.ones((4, len(parts)), np.float32)
    truth = exact(weights, inputs, bias)
    blocks = [summed(weights[:, part], np.tile(inputs[part], (4, 1)), zero) for part in parts]
    for first in blocks[0]:
        for second, values in summed(ones, np.stack([block[first] for block in blocks], 1), bias).items():
            for value, right, room in zip(values.tolist(), truth, allowed.tolist(), strict=True):
                assert abs(Fraction(value) - right) <= Fraction(room), (first, second)


def test_subnormals_may_be_flushed():
    """A machine that takes every subnormal for zero, operands and results, stays within what is allowed."""

    def flush(x):
        return np.where(np.abs(x) < 2.0**-126, np.float32(0), x).astype(np.float32)

    rng = np.random.default_rng(0)
    with np.errstate(under="ignore"):
        weights = (rng.normal(size=(3, 50)) * 10.0 ** rng.integers(-44, 1, (3, 50))).astype(np.float32)
        inputs = (rng.random(50) * 10.0 ** rng.integers(-44, 1, 50)).astype(np.float32)
        bias = np.array([1e-40, -1e-38, 0], np.float32)
        layer = Linear((50,), (3,), weights.astype(np.float64), bias.astype(np.float64))
        allowed = errors(layer, inputs.astype(np.float64), inputs.astype(np.float64)).deployed
        value = flush(bias)
        for w, x in zip(weights.T, inputs, strict=True):
            value = flush(value + flush(flush(w) * flush(x)))
    for one, right, room in zip(value.tolist(), exact(weights, inputs, bias), allowed.tolist(), strict=True):
        assert abs(Fraction(one) - right) <= Fraction(room)
    # And a tiny result alone: the whole value is lost.
    lone = Linear((1,), (1,), np.array([[2.0**-100]]), np.zeros(1))
    assert errors(lone, np.array([2.0**-27]), np.array([2.0**-27])).deployed[0] >= 2.0**-127


def test_terms_that_are_zero_do_not_count():
    weights = np.zeros((1, 1000))
    weights[0, :3] = 1.0
    wide, narrow = Linear((1000,), (1,), weights, np.ones(1)), Linear((3,), (1,), weights[:, :3], np.ones(1))
    many, few = np.ones(1000), np.ones(3)
    assert errors(wide, many, many).deployed == pytest.approx(errors(narrow, few, few).deployed, rel=1e-12)


def test_normalise_and_pool():
    rng = np.random.default_rng(0)
    mean, std = np.float32(0.4914), np.float32(0.2471)
    image = rng.random((1, 8, 8)).astype(np.float32)
    wide = image.astype(np.float64)
    layer = Normalise((1, 8, 8), (1, 8, 8), np.full((1, 1, 1), float(mean)), np.full((1, 1, 1), float(std)))
    allowed = errors(layer, wide, wide).deployed
    values = (image - mean) / std
    for x, value, room in zip(image.ravel().tolist(), values.ravel().tolist(), allowed.ravel().tolist(), strict=True):
        right = (Fraction(x) - Fraction(float(mean))) / Fraction(float(std))
        assert abs(Fraction(value) - right) <= Fraction(room)
    pool = Pool((1, 8, 8), (1, 4, 4), 2)
    allowed = errors(pool, wide, wide).deployed
    pooled = (image[:, ::2, ::2] + image[:, ::2, 1::2] + image[:, 1::2, ::2] + image[:, 1::2, 1::2]) / np.float32(4)
    for i in range(4):
        for j in range(4):
            right = sum(Fraction(float(x)) for x in image[0, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].ravel()) / 4
            assert abs(Fraction(float(pooled[0, i, j])) - right) <= Fraction(float(allowed[0, i, j]))


def test_overflow_is_not_decided():
    layer = Linear((2,), (1,), np.array([[3e38, -3e38]]), np.zeros(1))
    with pytest.raises(Undecided, match="overflow"):
        errors(layer, np.ones(2), np.full(2, 2.0))
    with pytest.raises(Undecided, match="overflow"):
        errors(Pool((1, 2, 2), (1, 1, 1), 2), np.zeros((1, 2, 2)), np.full((1, 2, 2), 1e38))


def test_the_exponentials_are_enclosed():
    logarithms = np.concatenate([np.linspace(-85, 85, 400), [0.0, -1e-30]]).astype(np.float32)
    least = least_exponentials(logarithms)
    arb = flint().arb
    for h, w in zip(logarithms.tolist(), least.tolist(), strict=True):
        assert arb(w) <= arb(h).exp() * (1 - arb(EXP_ULPS))
        assert arb(w) * (1 + arb(SPREAD)) >= arb(h).exp() * (1 + arb(EXP_ULPS))
    assert (np.exp(logarithms) >= least).all()
    assert (np.exp(logarithms) <= least * (1 + SPREAD)).all()
    tiny = least_exponentials(np.array([-95.0, -1e4], np.float32))
    assert (tiny > 0).all()
    assert (tiny < 2.0**-124).all()
    for h in (89.0, 1e30, np.nan):
        with pytest.raises(Undecided, match="overflows"):
            least_exponentials(np.array([h], np.float32))
