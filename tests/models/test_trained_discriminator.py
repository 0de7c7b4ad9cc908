"""Bounds of a discriminator that was trained for CIFAR-10, where one lies beside the checkout."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from prood.bounds import Box
from prood.bounds.certificate import crown_ibp
from prood.models import Discriminator, discriminator

SHARED = Path(__file__).parents[3] / "shared"
WEIGHTS = SHARED / "models" / "discriminator-S-prototype.safetensors"
IMAGES = SHARED / "data" / "svhn" / "test-00.webp"
NAMES = {"body.1": "conv1", "body.3": "conv2", "body.5": "conv3", "body.9": "hidden", "tail.1": "last"}

pytestmark = pytest.mark.skipif(
    not (WEIGHTS.exists() and IMAGES.exists()), reason="no trained discriminator or images beside the checkout"
)


@pytest.fixture(scope="module")
def trained() -> Discriminator:
    g = discriminator("S", mean=(0.4914, 0.4822, 0.4465), std=(0.2471, 0.2435, 0.2616))
    weights, state = load_file(WEIGHTS), g.state_dict()
    for name, value in state.items():
        layer, _, what = name.rpartition(".")
        if layer in NAMES:
            value.copy_(weights[f"{NAMES[layer]}.{what}"].reshape(value.shape))
    return g.eval()


@pytest.fixture(scope="module")
def house_numbers() -> torch.Tensor:
    with Image.open(IMAGES) as sheet:
        row = np.asarray(sheet.convert("RGB").crop((0, 0, 32 * 16, 32)))  # the first images of the first row
    images = row.reshape(32, 16, 32, 3).transpose(1, 3, 0, 2).copy()
    return torch.tensor(images).float() / 255


@torch.no_grad()
def test_the_linear_bound_is_the_certificate(trained: Discriminator, house_numbers: torch.Tensor) -> None:
    """As trained with it, the interval bound says nothing here, and the linear one is tight to a few tenths."""
    g = trained(house_numbers)
    interval, linear = (trained.upper_bound(house_numbers, 0.01, method=m) for m in ("ibp", "crown-ibp"))
    assert (interval == trained.ceiling).all()
    assert (linear - g).median() < 0.5
    torch.testing.assert_close(trained.upper_bound(house_numbers, 0.01), torch.minimum(interval, linear))
    by_middle = crown_ibp(trained, Box.ball(house_numbers, 0.01))
    assert by_middle.median() > trained.ceiling  # without the slopes of the image it would say nothing either


@torch.no_grad()
def test_no_corner_of_the_ball_exceeds_it(trained: Discriminator, house_numbers: torch.Tensor) -> None:
    bound = trained.upper_bound(house_numbers, 0.01)
    for _ in range(3):
        corner = (house_numbers + 0.01 * torch.randn_like(house_numbers).sign()).clamp(0, 1)
        assert (trained(corner) <= bound).all()
