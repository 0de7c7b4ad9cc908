"""A small joint model with names and a file's facts, and digits to show it."""

import pytest
import torch

from prood import data
from prood.detector import Detector
from prood.models import ProoD, discriminator, small


def joint(seed: int = 0) -> ProoD:
    """Random, but with confidences of many sizes and bounds below the ceiling."""
    torch.manual_seed(seed)
    f, g = small(8, width=4), discriminator("digits", image=(1, 28, 28))
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
    return ProoD(f, g, 1.5).eval()


@pytest.fixture
def model() -> ProoD:
    return joint()


@pytest.fixture
def detector(model) -> Detector:
    return Detector(model)


@pytest.fixture(scope="session")
def digits() -> torch.Tensor:
    """1,000 test images of the digits 0 to 7, as bytes."""
    return data.load("digits:test").images
