"""The pieces of sound arithmetic, each against brute force in exact numbers."""

from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from prood.bounds import (
    BlockedLinear,
    Box,
    NegativeLinear,
    Normalise,
    Residual,
    interval,
    upper_bound,
)
from prood.bounds.rounding import Sums, errors, outward, positive_sum, up

SEEDS = st.integers(0, 2**20)
NUMBERS = st.floats(0, 2.0**100, width=32)
EPS = st.sampled_from([0.0, 2.0**-24, 1e-6, 0.01, 0.1, 0.3, 2.0])


@given(st.lists(NUMBERS.filter(lambda x: x == 0 or x > 2.0**-100), min_size=1, max_size=20))
def test_up_makes_up_for_roundings(numbers: list[float]) -> None:
    values = torch.tensor(numbers)
    total = torch.zeros(())
    for value in values:
        total = total + value
    exact = sum(map(Fraction, numbers), Fraction(0))
    assert Fraction(up(total, len(numbers)).item()) >= exact
    assert Fraction(up(total, len(numbers)).item()) <= exact * (1 + Fraction(len(numbers) + 2, 2**21))
    assert up(torch.zeros(3), 5).tolist() == [0, 0, 0]


@given(st.lists(st.floats(0, 1e30, allow_subnormal=True), min_size=1, max_size=50))
def test_a_positive_sum_is_not_below_the_exact_one(numbers: list[float]) -> None:
    total = positive_sum(torch.tensor([numbers, numbers[::-1]], dtype=torch.float64))
    exact = sum(map(Fraction, numbers), Fraction(0))
    assert total.shape == (2,)
    assert all(exact <= Fraction(t) <= exact * (1 + Fraction(1, 2**40)) for t in total.tolist())


@pytest.mark.parametrize("value", [0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-126, 1.0, -3e38])
def test_outward_is_outward(value: float) -> None:
    lower, upper = outward(torch.tensor(value), torch.tensor(value))
    assert lower.item() < value < upper.item()


@pytest.mark.slow
@settings(max_examples=60)
@given(SEEDS, st.sampled_from([0, 1, 5, 20]), st.booleans())
def test_errors_cover_every_order(simulator: ModuleType, seed: int, dead: int, double: bool) -> None:
    """The deployed sum differs from the exact one by `deployed`, and by κ|W||x| + constant, at most."""
    rng = np.random.default_rng(seed)
    n = 20
    w = (rng.normal(size=(3, n)) * 10.0 ** rng.integers(-3, 3, (3, n))).astype(np.float32)
    w[0, 1::2] = -w[0, ::2]
    bias = (rng.normal(size=3) * 10.0 ** rng.integers(-3, 6, 3)).astype(np.float32)
    size = rng.random(n).astype(np.float32)
    size[:dead] = 0
    dtype = torch.float64 if double else torch.float32
    weight, offset, x = (torch.from_numpy(v).to(dtype) for v in (w, bias, size))
    sums = Sums((x != 0).sum(), 3, weight.abs().amax(), offset.abs())
    reach = (weight.abs() @ x)[None]
    rounding, radius = errors(sums, x[None], reach, reach, (weight @ x * 0 + offset)[None])
    assert not rounding.overflow.any()
    points = np.stack([size, size * rng.random(n).astype(np.float32), -size]).astype(np.float32)
    for hardware in simulator.kinds(rng, 9):
        values = hardware.affine(w, points, bias)
        for point, row in zip(points, values, strict=True):
            for i in range(3):
                products = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(w[i], point, strict=True)]
                error = abs(Fraction(float(row[i])) - sum(products) - Fraction(float(bias[i])))
                assert error <= Fraction(rounding.deployed[0, i].item())
                absolute = sum(map(abs, products))
                assert error <= Fraction(rounding.relative[0, i].item()) * absolute + Fraction(
                    rounding.constant[0, i].item()
                )
                assert abs(Fraction(float(row[i])) - Fraction(float(bias[i]))) <= Fraction(radius[0, i].item())
    if dead == n:
        assert (rounding.deployed <= 1e-6 * offset.abs()).all()


def test_a_sum_beyond_the_model_has_no_bound() -> None:
    sums = Sums(2.0**23, 1, torch.ones(()))
    zero = torch.zeros(1, 1)
    assert errors(sums, zero, zero, zero, zero)[0].overflow.all()


@pytest.mark.slow
@settings(max_examples=25)
@given(SEEDS, EPS)
def test_a_sound_ball_contains_the_ball(simulator: ModuleType, seed: int, eps: float) -> None:
    """Its float32 points, and those that float32 arithmetic makes with the rounded ε."""
    rng = np.random.default_rng(seed)
    special = rng.choice([0.0, 1.0, 1e-40, 2.0**-149, 2.0**-126, eps, eps * (1 + 1e-6), 1 - 2.0**-24], 30).clip(0, 1)
    image = np.concatenate([special, rng.random(30), eps + 1e-7 * rng.random(30)]).clip(0, 1).astype(np.float32)
    images = torch.from_numpy(image)[None]
    points = torch.from_numpy(simulator.points_of(image, eps, rng, 4))
    made = torch.stack([(images[0] + sign * eps).clamp(0, 1) for sign in (-1, 1)])
    for radius in (eps, torch.tensor(eps), torch.tensor([eps], dtype=torch.float64)):
        single = Box.sound_ball(images, radius)
        for box in (single, single.double()):
            rows = torch.cat([points, made]).to(box.centre.dtype)
            assert (rows >= box.lower).all()
            assert (rows <= box.upper).all()
            # centre ± radius in exact arithmetic, as layers use them, and not only the ends as we compute them
            centre, half = (v[0].double().tolist() for v in (box.middle, box.radius))
            for row in rows.double().tolist():
                assert all(
                    abs(Fraction(r) - Fraction(c)) <= Fraction(h) for r, c, h in zip(row, centre, half, strict=True)
                )
            assert (box.upper - box.lower <= 2 * eps * (1 + 1e-6) + 1e-6).all()


@pytest.mark.slow
@settings(max_examples=40)
@given(SEEDS)
def test_a_dead_unit_stays_exactly_zero(seed: int) -> None:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.MaxPool2d(2), nn.Flatten())
    net.append(BlockedLinear(3, 4, bias=False))
    nn.init.constant_(net[0].bias, -100.0)
    single = Box.sound_ball(torch.rand(2, 1, 4, 4), 0.1)
    for ball in (single, single.double()):
        network = net.to(ball.radius.dtype)
        box = interval(network[0], ball)
        for layer in network[1:]:
            box = interval(layer, box)
            assert not box.lower.any()
            assert not box.upper.any()


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "best"])
def test_sound_bounds_are_a_little_above_plain_ones(method: str) -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
    net = nn.Sequential(
        Normalise([0.5], [0.25]),
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        Residual(body),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
    )
    net.extend([BlockedLinear(36, 9), nn.ReLU(), NegativeLinear(9)])
    images = torch.rand(5, 1, 8, 8)
    for eps in (0.0, 0.01, 0.1):
        sound, plain = (
            upper_bound(net.eval(), images, eps, method=method, arithmetic=arithmetic)
            for arithmetic in ("sound", "plain")
        )
        torch.testing.assert_close(sound, plain.detach(), rtol=0, atol=3e-3 if method == "ibp" else 1e-4)
        assert (sound >= plain - 1e-6).all()
