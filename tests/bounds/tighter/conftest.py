"""Small networks in float32, for which both arithmetics have tighter bounds."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Budget, NegativeLinear, Normalise, Residual

QUICK = Budget(steps=5, splits=12, split_steps=3, seconds=20, batch=8)


def convolutions(seed: int) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(seed)
    shared = nn.ReLU()  # used twice, as users do
    network = nn.Sequential(
        Normalise([0.4], [0.3]),
        nn.Conv2d(1, 4, 3, padding=1),
        shared,
        nn.Sequential(nn.Conv2d(4, 5, 3, stride=2, padding=1), shared),
        nn.Conv2d(5, 4, 3, padding=1, dilation=1),
        nn.ReLU(inplace=True),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 4, 6),
        nn.ReLU(),
        NegativeLinear(6),
    )
    return network.eval(), torch.rand(3, 1, 8, 8)


def dense(seed: int) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 1))
    return network, torch.rand(3, 4)


def branches(seed: int) -> tuple[nn.Sequential, Tensor]:
    """With a layer that has no rule for windows."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 3, 1))
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), Residual(body), nn.ReLU(), nn.Flatten(), nn.Linear(75, 1)
    )
    return network, torch.rand(2, 1, 5, 5)


CASES: dict[str, Callable[[int], tuple[nn.Sequential, Tensor]]] = {
    "convolutions": convolutions,
    "dense": dense,
    "branches": branches,
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Callable[[int], tuple[nn.Sequential, Tensor]]:
    return CASES[request.param]


@pytest.fixture
def quick() -> Budget:
    return QUICK
