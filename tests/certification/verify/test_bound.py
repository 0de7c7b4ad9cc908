"""Every bound holds: against float32 in all orders of summation, against exact rationals, for all norms and scales."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from prood.certification.verify.ball import Ball
from prood.certification.verify.bound import bounds, highest
from prood.certification.verify.exact import Undecided
from prood.certification.verify.layers import Linear, Network, Normalise, ReLU
from prood.certification.verify.network import read_model
from prood.certification.verify.rounding import ceiling, intervals
from prood.models import load, save

NORMS = {"linf": 0.1, "l2": 0.5, "l1": 1.5}


def image_of(shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.float32) / np.float32(255)


def points_of(ball: Ball, network: Network, count: int) -> list[np.ndarray]:
    """Random points of the border, and the best that the search finds."""
    rng = np.random.default_rng(5)
    found = [ball.image, highest(network, ball, np.inf).image]
    for _ in range(count):
        point = ball.inside(ball.furthest(rng.normal(size=ball.image.shape)))
        found += [] if point is None else [point]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "size", "shape", "count"),
    [
        *[(norm, "digits", (1, 6, 6), 30) for norm in NORMS],
        ("linf", "digits", (3, 7, 5), 10),
        *[(norm, "p3 4s2 p2 fc6", (2, 13, 12), 10) for norm in NORMS],
        *[(norm, "p2 p3 6 fc6", (1, 14, 18), 10) for norm in NORMS],
        ("l2", "XS", (3, 5, 6), 1),
    ],
)
def test_no_order_of_summation_beats_a_bound(make_model, returned, norm, size, shape, count):
    path = make_model(size=size, image=shape)
    network, model = read_model(path).network, load(path)[0]
    ball = Ball(image_of(shape), norm, NORMS[norm])
    lowest = min(bound for _, bound in bounds(network, ball))
    for point in points_of(ball, network, count):
        values = returned(model, point)
        exact = point.astype(np.float64)
        last = intervals(network.layers, (exact, exact))[-1].outside
        assert last[0][0] <= min(values)
        assert max(values) <= min(last[1][0], lowest)
        assert max(values) <= ceiling(network)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("front", "factor"), [("p2", 2), ("p3", 3), ("p2 p3", 6)])
def test_averages_in_front_cost_a_ball_nothing(make_model, norm, front, factor):
    """A ball of radius ε is averaged into one of ε (ℓ∞), ε/factor (ℓ2) or ε/factor² (ℓ1); bounds are about those."""
    side = 6 * factor
    small, large = make_model(size="4s2 fc6"), make_model(name="large", size=f"{front} 4s2 fc6", image=(1, side, side))
    weights, model = load(small)[0].state_dict(), load(large)[0]
    model.load_state_dict(dict(zip(model.state_dict(), weights.values(), strict=True)))
    save(model, large)
    image = 0.3 + 0.4 * image_of((1, 6, 6))
    spread = image.repeat(factor, 1).repeat(factor, 2)
    shrink = {"linf": 1, "l2": factor, "l1": factor**2}[norm]
    eps = NORMS[norm] / 10
    few = dict(zip(range(6), bounds(read_model(small).network, Ball(image, norm, eps)), strict=False))
    many = dict(zip(range(6), bounds(read_model(large).network, Ball(spread, norm, shrink * eps)), strict=False))
    for place, (name, bound) in few.items():
        assert many[place] == (name, pytest.approx(bound, abs=1e-3))


@pytest.mark.parametrize("scale", [1e-20, 1e-10, 1e-4, 1e4, 1e9])
def test_weights_of_all_scales(make_model, returned, scale):
    path = make_model(scale=scale)
    network, model = read_model(path).network, load(path)[0]
    ball = Ball(image_of((1, 6, 6)), "linf", 0.02)
    lowest = min(bound for _, bound in bounds(network, ball))
    for point in points_of(ball, network, 10):
        assert max(returned(model, point)) <= lowest


def test_weights_that_differ_by_forty_orders_of_magnitude(make_model, returned):
    def change(model):
        for value in model.parameters():
            if value.ndim > 1 and len(value) > 1:
                value.mul_(10.0 ** torch.randint(-42, 4, value.shape))

    path = make_model(change=change)
    network, model = read_model(path).network, load(path)[0]
    ball = Ball(image_of((1, 6, 6)), "linf", 0.1)
    lowest = min(bound for _, bound in bounds(network, ball))
    with np.errstate(under="ignore"):
        for point in points_of(ball, network, 20):
            assert max(returned(model, point)) <= lowest


def test_weights_of_1e20_overflow_and_decide_nothing(make_model):
    network = read_model(make_model(scale=1e20)).network
    with pytest.raises(Undecided, match="overflow"), np.errstate(all="ignore"):
        list(bounds(network, Ball(image_of((1, 6, 6)), "linf", 0.1)))


def tiny_network(rng: np.random.Generator) -> Network:
    def draw(*shape):
        return rng.normal(size=shape).astype(np.float32).astype(np.float64)

    mean, std = np.full((1, 1, 1), 0.5), np.full((1, 1, 1), 0.25)
    return Network(
        (
            Normalise((1, 1, 3), (1, 1, 3), mean, std),
            Linear((1, 1, 3), (4,), draw(4, 3), draw(4)),
            ReLU(),
            Linear((4,), (3,), draw(3, 4), draw(3)),
            ReLU(),
            Linear((3,), (1,), -np.abs(draw(1, 3)), draw(1)),
        )
    )


def exact_value(network: Network, image) -> Fraction:
    values = [(Fraction(u) - Fraction(1, 2)) * 4 for u in image]
    for layer in network.layers[1:]:
        if isinstance(layer, ReLU):
            values = [max(value, Fraction(0)) for value in values]
        else:
            values = [
                sum((Fraction(w) * v for w, v in zip(row.tolist(), values, strict=True)), Fraction(b))
                for row, b in zip(layer.weight, layer.bias.tolist(), strict=True)
            ]
    return values[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_exact_values_stay_below_and_not_far(seed):
    """In exact arithmetic, on a grid over the whole ball; tiny networks have bounds that are nearly reached."""
    rng = np.random.default_rng(seed)
    network = tiny_network(rng)
    image = (rng.integers(3, 13, 3) / 16).astype(np.float32)
    eps = 1 / 32
    ball = Ball(image.reshape(1, 1, 3), "linf", eps)
    lowest = min(bound for _, bound in bounds(network, ball))
    steps = np.linspace(-eps, eps, 5).tolist()
    values = [
        exact_value(network, [float(x) + d for x, d in zip(image, move, strict=True)])
        for move in itertools.product(steps, repeat=3)
    ]
    assert max(values) <= Fraction(lowest)
    assert lowest <= ceiling(network)
    assert highest(network, ball, np.inf).value <= lowest
    assert lowest - max(values) < 1.0


@pytest.mark.parametrize("seed", range(5))
def test_a_ball_of_radius_zero_leaves_only_rounding(seed):
    rng = np.random.default_rng(seed)
    network = tiny_network(rng)
    image = rng.random(3).astype(np.float32)
    value = exact_value(network, image.tolist())
    lowest = min(bound for _, bound in bounds(network, Ball(image.reshape(1, 1, 3), "linf", 0.0)))
    assert 0 <= Fraction(lowest) - value < Fraction(1, 10**4)


def test_planes_beat_intervals_and_reach_crown_ibp_with_all_rounding_covered(make_model):
    path = make_model(image=(1, 10, 10))
    network, model = read_model(path).network, load(path)[0]
    for seed in range(5):
        image = image_of((1, 10, 10), seed)
        found = dict(bounds(network, Ball(image, "linf", 0.03)))
        theirs = model.upper_bound(torch.from_numpy(image)[None], 0.03, method="crown-ibp").item()
        planes = min(found["a plane (image)"], found["a plane (middle)"])
        assert planes == pytest.approx(theirs, abs=5e-3)  # the same relaxation, up to rounding
        assert planes <= found["intervals"]
        assert min(found.values()) <= theirs


def test_a_ball_in_another_norm_gives_other_bounds_than_its_box(make_model):
    network = read_model(make_model()).network
    ball = Ball(image_of((1, 6, 6)), "linf", 0.2)
    box = min(bound for _, bound in bounds(network, ball))
    for norm in ("l2", "l1"):
        assert min(bound for _, bound in bounds(network, replace(ball, norm=norm))) < box - 0.1
        inner = intervals(network.layers, ball.box, replace(ball, norm=norm))[1].outside
        outer = intervals(network.layers, ball.box)[1].outside
        assert (inner[1] - inner[0] <= outer[1] - outer[0]).all()
        assert (inner[1] - inner[0]).sum() < 0.9 * (outer[1] - outer[0]).sum()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("eps", [0.05, 0.4, 3.0])
def test_the_first_convolution_stays_in_its_interval(make_model, norm, eps):
    """At the points of the ball where a unit is highest and lowest; some pixels are black or white."""
    network = read_model(make_model(image=(1, 7, 7))).network
    image = image_of((1, 7, 7))
    image[0, :3] = np.round(image[0, :3])
    ball = Ball(image, norm, eps)
    normalise, convolution = network.layers[:2]
    lower, upper = intervals(network.layers, ball.box, ball)[1].outside
    rng = np.random.default_rng(0)
    for unit in rng.integers(0, lower.size, 60):
        slope = np.zeros(lower.shape)
        slope.flat[unit] = 1
        slope = normalise.adjoint(convolution.adjoint(slope[None]))[0]
        for sign in (1, -1):
            point = ball.inside(ball.furthest(sign * slope)).astype(np.float64)[None]
            value = convolution.map(normalise.map(point) + normalise.bias)[0] + convolution.bias
            assert (lower <= value).all()
            assert (value <= upper).all()


def test_the_ceiling_of_a_subnormal_bias_is_zero(make_model):
    def change(model):
        model.last.bias.fill_(-1e-40)

    assert ceiling(read_model(make_model(change=change)).network) == 0
