"""Operations that map each byte of a channel to another: a table of 256 bytes per image and channel, then one gather.

Each function takes images (n, C, H, W) and values (n,), and returns tables that broadcast to (n, C, 256), as
`ImageOps` and `ImageEnhance` make them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from prood.data.augment.blends import blend, luma, product

Maker = Callable[[Tensor, Tensor], Tensor]


def solarize(images: Tensor, values: Tensor) -> Tensor:
    """Invert what is not below the threshold. With the threshold 0 that is everything: Invert."""
    byte = _bytes(images)
    return torch.where(byte < values[:, None, None], byte, 255 - byte).to(torch.uint8)


def posterize(images: Tensor, values: Tensor) -> Tensor:
    """Keep this many of the highest bits."""
    low = (8 - values).to(torch.int32)[:, None, None]
    return ((_bytes(images) >> low) << low).to(torch.uint8)


def brightness(images: Tensor, values: Tensor) -> Tensor:
    """0 is black, 1 the image itself."""
    byte = _bytes(images)
    return blend(torch.zeros_like(values, dtype=torch.float32)[:, None, None], byte, values[:, None, None])


def contrast(images: Tensor, values: Tensor) -> Tensor:
    """0 is the mean of the grey image everywhere, 1 the image itself."""
    pixels = images.shape[2] * images.shape[3]
    mean = (luma(images).sum(dim=(1, 2, 3)) * 2 + pixels) // (2 * pixels)
    return blend(mean.to(torch.float32)[:, None, None], _bytes(images), values[:, None, None])


def autocontrast(images: Tensor, values: Tensor) -> Tensor:
    """Stretch each channel to 0 … 255: ⌊255/(high − low) · byte − 255/(high − low) · low⌋ in float64.

    Where the exact result is whole, rounding decides between it and the number below: every rounding must be Pillow's.
    """
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True), flat.amax(2, keepdim=True)
    spread = (high - low).double()
    # A single value has nothing to stretch and stays. (255 / tensor would multiply by the reciprocal.)
    scale = torch.where(spread > 0, torch.full_like(spread, 255) / spread, 1)
    start = product(low * (spread > 0), scale, 2**20)
    return product(_bytes(images), scale, 2**20).sub_(start).clamp_(0, 255).to(torch.uint8)


def equalize(images: Tensor, values: Tensor) -> Tensor:
    """Make the histogram of each channel flat."""
    count, channels = images.shape[:2]
    flat = images.reshape(count * channels, -1).to(torch.int64)
    one = torch.ones((), dtype=torch.int32, device=images.device).expand(flat.shape)
    histogram = torch.zeros(len(flat), 256, dtype=torch.int32, device=images.device).scatter_add_(1, flat, one)
    step = (flat.shape[1] - histogram.gather(1, flat.amax(1, keepdim=True))) // 255
    before = histogram.cumsum(1, dtype=torch.int32).sub_(histogram)
    # Whole numbers divided in float32, which is faster and, once cut off, exact up to 2²² pixels.
    table = (before.add_(step // 2) / step.clamp(min=1)).clamp_(max=255)
    table = torch.where(step > 0, table, torch.arange(256, dtype=torch.float32, device=images.device))
    return table.to(torch.uint8).reshape(count, channels, 256)


# In the order of their codes; those that share a function are neighbours.
TABLES: dict[str, Maker] = {
    "Invert": solarize,
    "Solarize": solarize,
    "Posterize": posterize,
    "Brightness": brightness,
    "Contrast": contrast,
    "AutoContrast": autocontrast,
    "Equalize": equalize,
}


def look_up(images: Tensor, tables: Tensor) -> Tensor:
    """Each byte replaced by its entry in the table of its image and channel."""
    return tables.gather(2, images.flatten(2).to(torch.int64)).reshape(images.shape)


def _bytes(images: Tensor) -> Tensor:
    return torch.arange(256, dtype=torch.int32, device=images.device).expand(len(images), 1, 256)
