"""The affine piece of a network at infinity, against the network itself far out."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Residual
from prood.errors import Unsupported
from prood.evaluation.asymptotics.rays import Ray, follow
from prood.models import small

SHAPE = (1, 8, 8)
Make = Callable[..., nn.Sequential]


def rays(count: int = 40, seed: int = 1) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.rand(count, *SHAPE, dtype=torch.float64), torch.randn(count, *SHAPE, dtype=torch.float64)


def column(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def assert_affine(layers: nn.Module, start: Tensor, direction: Tensor, exact: nn.Module | None = None) -> None:
    """From `beyond` on the network is slope·α + offset, at the beginning of the piece and far out."""
    ray = follow(layers, Ray.of(start, direction))
    exact = exact or layers.double()
    with torch.no_grad():
        for factor in (1.0, 2.0, 1000.0):
            alpha = ray.beyond.clamp_min(1e-3) * factor
            found = exact(start + column(alpha) * direction)
            expected = ray.slope * alpha[:, None] + ray.offset
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_discriminator(make: Make, exact: Make, seed: int) -> None:
    assert_affine(make(seed), *rays(), exact(make(seed)))


def test_a_classifier_with_batch_norms_and_pools() -> None:
    torch.manual_seed(0)
    model = small(4, width=4).train()
    model(torch.rand(50, *SHAPE))  # so that the running statistics are not the initial ones
    assert_affine(model.eval(), *rays())


def test_residual_sums_and_leaky_units() -> None:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(3, 1, 1), nn.BatchNorm2d(1))
    layers = nn.Sequential(Residual(inner), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(64, 3))
    assert_affine(layers.eval(), *rays())


def test_the_piece_does_not_begin_earlier() -> None:
    """One pixel, one unit that turns on at α = 5."""
    layer = nn.Linear(1, 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(-10.0)
    ray = follow(nn.Sequential(layer, nn.ReLU()), Ray.of(torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]])))
    assert ray.beyond.tolist() == [5.0, 0.0]
    assert ray.slope.flatten().tolist() == [2.0, 0.0]
    assert ray.offset.flatten().tolist() == [-10.0, 0.0]


def test_where_nothing_grows_the_offset_decides() -> None:
    """Two units that do not see the direction: the one above zero stays on."""
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        layer.bias.copy_(torch.tensor([0.5, -3.0]))
    ray = follow(nn.Sequential(layer, nn.ReLU()), Ray.of(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])))
    assert ray.offset.tolist() == [[1.5, 0.0]]
    assert not ray.slope.any()
    assert not ray.error.any()


def test_the_error_covers_what_rounding_does() -> None:
    """Slopes that cancel to zero but for rounding: the error says that their sign is not known."""
    torch.manual_seed(0)
    first = nn.Linear(200, 100, bias=False)
    second = nn.Linear(100, 1, bias=False)
    direction = torch.randn(1, 200, dtype=torch.float64)
    with torch.no_grad():
        values = first.weight.double() @ direction[0]
        weights = torch.ones(100, dtype=torch.float64)
        weights[-1] = -(values[:-1].sum() / values[-1])
        second.weight.copy_(weights)
    second.double().weight.data.copy_(weights)
    ray = follow(nn.Sequential(first, second), Ray.of(torch.zeros_like(direction), direction))
    assert 0 < ray.error.item() < 1e-9
    assert abs(ray.slope.item()) <= ray.error.item()


def test_the_error_is_a_bound_and_a_small_one() -> None:
    """Against the same sums in exact rational arithmetic."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 4)).eval()
    direction = torch.randn(20, 12, dtype=torch.float64)
    ray = follow(layers, Ray.of(torch.zeros_like(direction), direction))
    for row, d in enumerate(direction.tolist()):
        values = [Fraction(value) for value in d]
        for layer in layers:
            if isinstance(layer, nn.ReLU):
                values = [max(value, Fraction(0)) for value in values]
            else:
                weight = [[Fraction(w) for w in line] for line in layer.weight.tolist()]
                values = [sum((w * v for w, v in zip(line, values, strict=True)), Fraction(0)) for line in weight]
        for found, error, exact in zip(ray.slope[row].tolist(), ray.error[row].tolist(), values, strict=True):
            assert abs(Fraction(found) - exact) <= Fraction(error)
            assert error < 1e-13


def test_the_error_of_a_convolution_is_that_of_its_matrix() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(1, 3, 3, stride=2, padding=1, bias=False)
    basis = torch.eye(64, dtype=torch.float64).view(64, *SHAPE)
    dense = nn.Linear(64, 48, bias=False).double()
    with torch.no_grad():
        dense.weight.copy_(layer.double()(basis).flatten(1).T)
    direction = rays(5)[1]
    one = follow(layer, Ray.of(torch.zeros_like(direction), direction))
    other = follow(dense, Ray.of(torch.zeros_like(direction).flatten(1), direction.flatten(1)))
    torch.testing.assert_close(one.slope.flatten(1), other.slope)
    expected = other.error * (9 + 8) / (64 + 8)  # as so many terms round
    torch.testing.assert_close(one.error.flatten(1), expected, rtol=1e-6, atol=0)


def test_what_cannot_be_followed_is_refused() -> None:
    start, direction = rays(2)
    with pytest.raises(Unsupported, match="Tanh"):
        follow(nn.Sequential(nn.Flatten(), nn.Tanh()), Ray.of(start, direction))
    with pytest.raises(Unsupported):
        follow(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect").eval(), Ray.of(start, direction))
    with pytest.raises(Unsupported):
        follow(nn.AvgPool2d(2, padding=1, count_include_pad=False), Ray.of(start, direction))
    with pytest.raises(Unsupported):
        follow(nn.BatchNorm2d(1, track_running_stats=False).eval(), Ray.of(start, direction))
