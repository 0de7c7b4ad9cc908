"""Networks that were built to break bounds: each has a value in float32 that plain arithmetic does not foresee."""

import itertools
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from prood.bounds import BlockedLinear, NegativeLinear, Normalise, Residual, interval, upper_bound
from prood.bounds.box import Box
from prood.bounds.registry import NoLinearRule

METHODS = ("ibp", "crown-ibp", "best")


def linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight), bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))
    return layer


def largest(simulator: ModuleType, net: nn.Module, points: Tensor) -> np.ndarray:
    """The largest value of each point on any hardware; NaN if one is none."""
    rng = np.random.default_rng(0)
    settings = itertools.product(simulator.ORDERS, (False, True), (False, True), (-3, 3), (0, 2))
    kinds = [
        simulator.Hardware(order, fused, flush, ulps, formula, rng) for order, fused, flush, ulps, formula in settings
    ]
    return np.stack([kind.run(net, points.numpy())[:, 0] for kind in kinds]).max(0)


def sound(net: nn.Module, images: Tensor, eps: float = 0.0) -> list[Tensor]:
    found = []
    for method in METHODS:
        try:
            found.append(upper_bound(net, images, eps, method=method))
        except NoLinearRule:
            assert method == "crown-ibp"
    return found


def relu_of(*layers: nn.Module, units: int) -> nn.Sequential:
    """b − Σ relu(hidden), the shape of every discriminator."""
    last = NegativeLinear(units, bias=0.5)
    nn.init.zeros_(last.log_weight)
    return nn.Sequential(*layers, nn.ReLU(), last).eval()


BIG = [[1e8, 1.0, -1e8], [1.0, 1e8, -1e8], [1e8, -1e8, 1.0], [-1e8, 1.0, 1e8]]


def order_matters() -> tuple[nn.Module, Tensor]:
    return relu_of(linear(BIG), units=4), torch.ones(1, 3)


def huge_biases() -> tuple[nn.Module, Tensor]:
    first = linear((10 * torch.randn(8, 3)).tolist(), [1e5] * 8)
    second = linear([[1.0, -1.0] * 4, [-1.0, 1.0] * 4], [100.0, 100.0])
    return relu_of(first, nn.ReLU(), second, units=2), torch.rand(20, 3)


def cancellation() -> tuple[nn.Module, Tensor]:
    weight = torch.randn(6, 8) * 1000
    both = torch.cat([weight, -weight], 1) + 1e-3 * torch.randn(6, 16)
    return relu_of(linear(both.tolist()), units=6), torch.full((20, 16), 0.7) + 1e-6 * torch.randn(20, 16)


def huge_biases_of_blocks() -> tuple[nn.Module, Tensor]:
    layer = BlockedLinear(16, 4)
    nn.init.constant_(layer.bias, 1e6)
    return relu_of(layer, linear(torch.randn(4, 4).tolist(), [-1e6] * 4), units=4), torch.rand(20, 16)


def worst_sum() -> tuple[nn.Module, Tensor]:
    """From the largest on, every addition loses half a unit in the last place: the error is n·u, as in the model."""
    return relu_of(linear([[1.0] + [2.0**-24] * 63]), units=1), torch.ones(1, 64)


def worst_sum_of_blocks() -> tuple[nn.Module, Tensor]:
    layer = BlockedLinear(64, 1, bias=False)
    block = torch.tensor([1.0] + [2.0**-24] * 7)
    with torch.no_grad():
        layer.weight.copy_((block[:, None] * block).reshape(1, 64))  # in the blocks, and then over them
    return relu_of(layer, units=1), torch.ones(1, 64)


@pytest.mark.parametrize(
    "build", [order_matters, huge_biases, cancellation, huge_biases_of_blocks, worst_sum, worst_sum_of_blocks]
)
def test_the_bound_holds_where_the_plain_one_fails(build, simulator: ModuleType) -> None:
    torch.manual_seed(0)
    net, images = build()
    values = largest(simulator, net, images)
    for bound in sound(net, images):
        assert (values <= bound.numpy()).all()
        assert bound.isfinite().all()
    for method in METHODS:
        plain = upper_bound(net, images, 0.0, method=method, arithmetic="plain").detach()
        assert (values > plain.numpy()).any(), method


@pytest.mark.slow
@pytest.mark.parametrize("formula", [0, 1, 2])
@pytest.mark.parametrize("pixel", [0.0, 1.0])
def test_the_shift_of_a_normalisation_is_rounded_as_well(formula: int, pixel: float, simulator: ModuleType) -> None:
    """Unlike a bias it is a product: of a black pixel, nothing but its rounding errors is left."""
    rng = np.random.default_rng(0)
    images = torch.full((1, 1, 1, 1), pixel)
    for _ in range(40):
        norm = nn.BatchNorm2d(1)
        norm.running_mean.fill_(rng.uniform(1, 100))
        norm.running_var.fill_(rng.uniform(1e-5, 2))
        nn.init.constant_(norm.weight, rng.uniform(-2, 2))
        fixed = Normalise([rng.uniform(-9, 9)], [rng.uniform(0.01, 9)])
        for layer in (norm, fixed):
            net = nn.Sequential(layer, nn.Flatten()).eval()
            bound = min(bound.item() for bound in sound(net, images))
            for fused in (False, True):
                assert simulator.Hardware(fused=fused, formula=formula).run(net, images.numpy()).item() <= bound


def overflow_in_one_order() -> tuple[nn.Module, Tensor]:
    return linear([[2e38, -2e38, 2e38, -1e38]]), torch.ones(1, 4)


def average_before_division() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.AvgPool2d(3), nn.Flatten()), torch.ones(1, 1, 3, 3)


def sums_of_sums() -> tuple[nn.Module, Tensor]:
    net: nn.Module = nn.Identity()
    for _ in range(4):
        net = Residual(net, net)
    return nn.Sequential(linear([[8e37]]), net), torch.ones(1, 1)


def infinite_weight_of_a_dead_unit() -> tuple[nn.Module, Tensor]:
    last = NegativeLinear(2)
    nn.init.constant_(last.log_weight, 89.0)
    return nn.Sequential(linear([[-1.0], [-2.0]], [-1.0, -1.0]), nn.ReLU(), last), torch.ones(1, 1)


def far_mean() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), Normalise([-3.3e38], [1e30]), nn.Flatten()), torch.ones(
        1, 1, 1, 1
    )


@pytest.mark.parametrize(
    "build", [overflow_in_one_order, average_before_division, sums_of_sums, infinite_weight_of_a_dead_unit, far_mean]
)
def test_what_may_overflow_has_no_bound(build, simulator: ModuleType) -> None:
    net, images = build()
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.constant_(layer.weight, 8e37)
    assert not np.isfinite(largest(simulator, net, images)).all()
    for bound in sound(net, images):
        assert bound.item() == np.inf


@pytest.mark.parametrize("pixel", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_no_numbers_have_no_bound(pixel: float) -> None:
    net = relu_of(linear(BIG), units=4)
    images = torch.tensor([[pixel, 0.5, 0.5], [0.1, 0.2, 0.3]])
    for bound in sound(net, images, 0.1):
        assert bound[1].isfinite()
        assert bound[0] == np.inf or not np.isnan(pixel)
    assert (upper_bound(net, images, 0.1, clip=None)[0] == np.inf).all()


@pytest.mark.slow
@pytest.mark.parametrize("bias", [-1e-40, -(2.0**-149), 1e-40])
def test_a_subnormal_bias_may_be_flushed(bias: float, simulator: ModuleType) -> None:
    dead = nn.Sequential(linear([[-1.0]], [-1.0]), nn.ReLU())
    last = NegativeLinear(1, bias=bias)
    for net in (nn.Sequential(dead, last), nn.Sequential(dead, linear([[1.0]], [bias]))):
        for bound in sound(net, torch.ones(1, 1)):
            assert largest(simulator, net, torch.ones(1, 1)).item() <= bound.item()
            assert bound.item() >= 0


def test_the_sum_in_one_piece_of_training_is_covered_in_training() -> None:
    layer = BlockedLinear(10_000, 1)
    box = Box.sound_ball(torch.rand(1, 10_000), 0.0)
    blocked, single = interval(layer.eval(), box), interval(layer.train(), box)
    assert single.radius > 5 * blocked.radius


@pytest.mark.slow
def test_the_cap_holds_exactly(simulator: ModuleType) -> None:
    """Nothing positive is ever added to the last bias: neither values nor bounds exceed it, by not even a bit."""
    torch.manual_seed(0)
    for bias in (0.1, 3.0, -7.7, 1e8):
        last = NegativeLinear(8, bias=bias)
        net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), last).eval()
        images = torch.rand(10, 5)
        assert (largest(simulator, net, images) <= last.bias.item()).all()
        for method, eps in itertools.product(("ibp", "best"), (0.0, 0.1, 2.0)):
            assert (upper_bound(net, images, eps, method=method) <= last.bias).all()
