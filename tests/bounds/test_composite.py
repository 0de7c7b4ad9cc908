from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prood.bounds import Box, Plane, Residual, UnsupportedLayer, interval, relax, upper_bound
from prood.bounds.certificate import crown_ibp

SEEDS = st.integers(0, 2**20)


def images(count: int = 3, shape: tuple[int, ...] = (2, 5, 5)) -> Tensor:
    return torch.rand(count, *shape, dtype=torch.float64)


def test_nesting_does_not_matter() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4), nn.ReLU(), nn.Linear(4, 1)]
    flat = nn.Sequential(*layers).double()
    nested = nn.Sequential(nn.Sequential(*layers[:2], nn.Sequential()), nn.Sequential(nn.Sequential(*layers[2:])))
    for method in ("ibp", "crown-ibp", "best"):
        x = images()
        assert torch.equal(
            upper_bound(flat, x, 0.1, method=method, arithmetic="plain"),
            upper_bound(nested, x, 0.1, method=method, arithmetic="plain"),
        )


def test_an_empty_sequence_is_the_identity() -> None:
    box = Box.ball(images(), 0.1)
    output, pullback = relax(nn.Sequential(), box)
    assert torch.equal(output.radius, box.radius)
    plane = Plane(torch.randn_like(box.radius), torch.ones(3))
    assert pullback(plane) is plane


@settings(max_examples=30)
@given(SEEDS, st.booleans(), st.booleans(), st.integers(0, 2))
def test_residual_is_sound(
    inside: Callable[..., Tensor], seed: int, convolution: bool, inplace: bool, points: int
) -> None:
    """Every output coordinate stays in the interval, and a random plane over the outputs lies above the sum."""
    torch.manual_seed(seed)
    stride = 2 if convolution else 1
    body = nn.Sequential(
        nn.ReLU(inplace), nn.Conv2d(2, 2, 3, stride=stride, padding=1), nn.ReLU(inplace), nn.Conv2d(2, 2, 1)
    )
    layer = Residual(body, nn.Conv2d(2, 2, 1, stride=2) if convolution else None).double()
    box = Box(torch.randn(points + 2, 2, 5, 5, dtype=torch.float64), torch.rand(2, 2, 5, 5, dtype=torch.float64))
    output, pullback = relax(layer, box)
    torch.testing.assert_close(output.points, layer(box.points.clone()))
    slope = torch.randn_like(output.radius)
    plane = pullback(Plane(slope, torch.full((2,), 0.5, dtype=torch.float64)))
    for point in inside(box, 5):
        value = layer(point.clone())
        assert (value <= output.upper + 1e-9).all()
        assert (value >= output.lower - 1e-9).all()
        above = (plane.slope * point).flatten(1).sum(1) + plane.offset
        assert ((slope * value).flatten(1).sum(1) + 0.5 <= above + 1e-9).all()


def test_branches_may_cancel_in_planes_but_not_in_intervals() -> None:
    minus = nn.Linear(3, 3, bias=False).double()
    minus.weight.data = -torch.eye(3, dtype=torch.float64)
    total = nn.Linear(3, 1, bias=False).double()
    network = nn.Sequential(Residual(minus), total)  # x − x = 0
    x = images(2, (3,))
    torch.testing.assert_close(
        upper_bound(network, x, 0.1, method="crown-ibp", arithmetic="plain"), torch.zeros(2, dtype=torch.float64)
    )
    assert (upper_bound(network, x, 0.1, method="ibp", arithmetic="plain") > 0.01).all()


def test_a_layer_used_twice_has_two_relaxations(climb: Callable[..., Tensor]) -> None:
    """One ReLU object at two places, and one network in both branches."""
    torch.manual_seed(3)
    relu, linear = nn.ReLU(), nn.Linear(4, 4)
    network = nn.Sequential(linear, relu, linear, relu, Residual(linear, linear), relu, nn.Linear(4, 1)).double()
    box = Box.ball(images(4, (4,)), 0.3)
    for slopes in (None, {relu: torch.rand(4, 4, dtype=torch.float64)}):
        assert (climb(network, box) <= crown_ibp(network, box, slopes) + 1e-9).all()


@pytest.mark.parametrize(
    ("body", "shortcut"), [(nn.ReLU(), nn.Linear(1, 3)), (nn.Linear(1, 3), nn.Linear(1, 1)), (nn.Linear(1, 3), None)]
)
def test_branches_of_different_shapes_are_refused(body: nn.Module, shortcut: nn.Module | None) -> None:
    layer = Residual(body, shortcut).double()
    x = images(2, (1,))
    assert layer(x).shape == (2, 3)  # torch broadcasts
    for bound in (interval, relax):
        with pytest.raises(UnsupportedLayer, match="Residual"):
            bound(layer, Box.ball(x, 0.1))


def test_an_unknown_layer_deep_inside_is_named() -> None:
    network = nn.Sequential(nn.Flatten(), Residual(nn.Sequential(nn.Linear(50, 50), nn.Tanh())))
    with pytest.raises(UnsupportedLayer, match=r"activation\.Tanh"):
        interval(network.double(), Box.ball(images(), 0.1))
