"""A small joint model on noise: random weights, so that nothing separates well and every order can go wrong."""

import pytest
import torch

from prood.data import ImageSet, uniform_noise
from prood.models import discriminator, small


@pytest.fixture(scope="session")
def inside():
    noise = uniform_noise(30, (1, 28, 28), seed=1)
    return ImageSet("inside", noise.images, torch.arange(30) % 4, ("a", "b", "c", "d"))


@pytest.fixture(scope="session")
def outside(inside):
    return {"dark": ImageSet("dark", inside.images // 3), "noise": uniform_noise(20, (1, 28, 28), seed=2)}


@pytest.fixture
def f():
    torch.manual_seed(0)
    return small(4, width=4).eval()


@pytest.fixture
def g():
    torch.manual_seed(1)
    return discriminator("digits", image=(1, 28, 28)).eval()


@pytest.fixture(scope="module", autouse=True)
def _short(short):
    """The preset's attacks with a tenth of their steps."""
