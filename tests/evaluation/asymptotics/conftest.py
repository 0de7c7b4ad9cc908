"""Small discriminators, most of them random: what they are asked does not depend on training."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from prood.bounds import NegativeLinear, Normalise
from prood.models import Discriminator

Make = Callable[..., nn.Sequential]


def network(seed: int = 0, hidden: int = 6, tilt: float = 0.1) -> nn.Sequential:
    """For images of 8×8, with every kind of layer of ours; tilted, so that in some directions no last unit is on."""
    torch.manual_seed(seed)
    layers = [Normalise([0.5], [0.25]), nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.AvgPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(16, hidden), nn.ReLU(), NegativeLinear(hidden)]
    with torch.no_grad():
        layers[5].weight.sub_(tilt)
    return nn.Sequential(*layers).eval()


def in_float64(model: nn.Sequential) -> nn.Sequential:
    """The same function of real numbers: with the last weights that float32 makes of −exp(h)."""
    layers = list(copy.deepcopy(model))
    last = layers[-1]
    if isinstance(last, NegativeLinear):
        layers[-1] = nn.Linear(last.in_features, 1)
        with torch.no_grad():
            layers[-1].weight.copy_(last.weight)
            layers[-1].bias.copy_(last.bias)
    return nn.Sequential(*layers).double().eval()


@pytest.fixture
def make() -> Make:
    return network


@pytest.fixture
def exact() -> Make:
    return in_float64


@pytest.fixture
def g() -> Discriminator:
    return Discriminator(network()).eval()
