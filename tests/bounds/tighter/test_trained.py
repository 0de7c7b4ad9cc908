"""On a discriminator that was trained for CIFAR-10, where one lies beside the checkout."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from prood.bounds import Budget, upper_bound
from prood.models import discriminator

SHARED = Path(__file__).parents[4] / "shared"
WEIGHTS = SHARED / "models" / "discriminator-S-prototype.safetensors"
IMAGES = SHARED / "data" / "svhn" / "test-00.webp"
NAMES = {"body.1": "conv1", "body.3": "conv2", "body.5": "conv3", "body.9": "hidden", "tail.1": "last"}


@pytest.mark.skipif(not (WEIGHTS.exists() and IMAGES.exists()), reason="no trained discriminator or images")
@torch.no_grad()
def test_house_numbers() -> None:
    g = discriminator("S", mean=(0.4914, 0.4822, 0.4465), std=(0.2471, 0.2435, 0.2616)).eval()
    weights = load_file(WEIGHTS)
    for name, value in g.state_dict().items():
        layer, _, what = name.rpartition(".")
        if layer in NAMES:
            value.copy_(weights[f"{NAMES[layer]}.{what}"].reshape(value.shape))
    with Image.open(IMAGES) as sheet:
        row = np.asarray(sheet.convert("RGB").crop((0, 0, 32 * 3, 32)))
    images = torch.tensor(row.reshape(32, 3, 32, 3).transpose(1, 3, 0, 2).copy()).float() / 255
    budget = Budget(steps=10)
    values = g(images)
    linear, alpha, crown = (
        upper_bound(g, images, 0.01, method=method, arithmetic="plain", budget=budget) - values
        for method in ("crown-ibp", "alpha-crown", "crown")
    )
    assert (linear - alpha > 0.01).sum() >= 2
    assert (alpha - crown > 0.01).sum() >= 2
    assert (crown > 0).all()
