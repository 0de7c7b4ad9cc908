import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from prood.data import generator


def images(count: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Noise, blurred pictures, narrow ranges of bytes, gradients and single colours: `count` of each."""
    random = generator(seed)
    shape = (count, channels, height, width)
    noise = torch.rand(shape, generator=random)
    coarse = torch.rand(count, channels, 4, 4, generator=random)
    picture = interpolate(coarse, size=(height, width), mode="bicubic").clamp(0, 1) * 0.8 + 0.1 * noise
    low, high = torch.rand(2, count, channels, 1, 1, generator=random).sort(dim=0).values
    gradient = low + (high - low) * torch.linspace(0, 1, height * width).reshape(height, width)
    parts = [noise, picture, low + (high - low) * noise, gradient, low.expand(shape)]
    return (torch.cat(parts) * 255.99).to(torch.uint8)


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy())


def from_pillow(image: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


@pytest.fixture(scope="session")
def pillow() -> SimpleNamespace:
    """reference.py on tensors, and images to try it on."""
    reference = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "reference.py")))

    def operate(batch: Tensor, name: str, value: float) -> Tensor:
        return torch.stack([from_pillow(reference.operation(to_pillow(image), name, value)) for image in batch])

    def augment(batch: Tensor, draws: Tensor, **options: int) -> Tensor:
        rows = zip(batch, draws.tolist(), strict=True)
        return torch.stack([from_pillow(reference.augmented(to_pillow(image), row, **options)) for image, row in rows])

    return SimpleNamespace(images=images, operate=operate, augment=augment, value=reference.value)
