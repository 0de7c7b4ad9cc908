import math

import pytest
import torch
from torch import nn

from prood.bounds import NegativeLinear, Normalise, Residual
from prood.errors import BadValue


def test_normalise_is_per_channel() -> None:
    layer = Normalise([0.5, 0.25], [0.5, 2.0])
    images = torch.rand(3, 2, 4, 4)
    output = layer(images)
    torch.testing.assert_close(output[:, 0], (images[:, 0] - 0.5) / 0.5)
    torch.testing.assert_close(output[:, 1], (images[:, 1] - 0.25) / 2)
    assert "mean=[0.5, 0.25]" in repr(layer)


def test_normalise_travels_with_the_weights_but_is_not_trained() -> None:
    layer = Normalise([0.5], [0.5])
    assert set(layer.state_dict()) == {"mean", "std"}
    assert not list(layer.parameters())


@pytest.mark.parametrize(
    ("mean", "std"), [([0.5], [0.0]), ([0.5], [-1.0]), ([0.5], [1.0, 1.0]), ([0.5], [math.nan]), ([0.5], [1e-50])]
)
def test_normalise_refuses_what_is_no_scale(mean: list[float], std: list[float]) -> None:
    with pytest.raises(BadValue):
        Normalise(mean, std)


def test_negative_linear_starts_as_the_paper_says() -> None:
    torch.manual_seed(0)
    layer = NegativeLinear(128)
    assert layer.log_weight.shape == (1, 128)
    assert layer.log_weight.abs().max() <= 1 / math.sqrt(128)
    assert layer.log_weight.abs().max() > 0.9 / math.sqrt(128)
    assert (layer.weight < 0).all()
    assert layer.bias.tolist() == [3.0]
    assert "in_features=128, out_features=1" in repr(layer)


def test_negative_linear_stays_negative_whatever_training_does() -> None:
    layer = NegativeLinear(50)
    with torch.no_grad():
        layer.log_weight.copy_(torch.linspace(-80, 80, 50)[None])
    assert (layer.weight < 0).all()
    values = torch.rand(100, 50) * torch.logspace(-6, 6, 100)[:, None]
    assert (layer(values) <= layer.bias).all()


def test_residual_adds_its_branches() -> None:
    body, shortcut = nn.Linear(3, 2), nn.Linear(3, 2)
    x = torch.rand(4, 3)
    torch.testing.assert_close(Residual(body, shortcut)(x), body(x) + shortcut(x))
    square = nn.Linear(3, 3)
    torch.testing.assert_close(Residual(square)(x), square(x) + x)


@pytest.mark.parametrize(
    ("body", "shortcut"),
    [
        (nn.ReLU(inplace=True), None),
        (nn.Sequential(nn.Identity(), nn.ReLU(inplace=True)), None),
        (nn.Sequential(nn.Dropout(), nn.Flatten(), nn.ReLU(inplace=True)), nn.Linear(3, 3)),
        (nn.Linear(3, 3), nn.ReLU(inplace=True)),
        (nn.Identity(), nn.ReLU(inplace=True)),
        (nn.LeakyReLU(0.3, inplace=True), nn.ReLU(inplace=True)),
        (Residual(nn.ReLU(inplace=True)), None),
        (nn.ELU(inplace=True), None),
    ],
)
def test_a_branch_that_works_in_place_does_not_spoil_the_other(body: nn.Module, shortcut: nn.Module | None) -> None:
    """Otherwise Residual(ReLU in place) would be 2·relu(x), which no bound of relu(x) + x covers."""
    layer = Residual(body, shortcut).eval()
    x = torch.randn(5, 3)
    expected = body(x.clone()) + layer.shortcut(x.clone())
    torch.testing.assert_close(layer(x.clone()), expected)
