"""Operations on colours, as `ImageOps` and `ImageEnhance` of Pillow make them: tables, and blends with a duller image.

A table maps each byte of a channel to another, 256 bytes per image and channel, and all are applied by one gather. A
function that makes tables takes images (n, C, H, W) and values (n,) and returns what broadcasts to (n, C, 256).
"""

from collections.abc import Callable

import torch
from torch import Tensor


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
    return blend(torch.zeros_like(values, dtype=torch.float32)[:, None, None], _bytes(images), values[:, None, None])


def contrast(images: Tensor, values: Tensor) -> Tensor:
    """0 is the mean of the grey image everywhere, 1 the image itself."""
    pixels = images.shape[2] * images.shape[3]
    mean = (_luma(images).sum(dim=(1, 2, 3)) * 2 + pixels) // (2 * pixels)
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
    start = _product(low * (spread > 0), scale, 2**20)
    return _product(_bytes(images), scale, 2**20).sub_(start).clamp_(0, 255).to(torch.uint8)


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
TABLES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
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


def blend(dull: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    """`Image.blend`: dull + factor · (image − dull) in float32, clipped to bytes and cut off; factors in [0, 2]."""
    change = _product(images - dull, factors.to(torch.float32), 2**12)
    return change.add_(dull).clamp_(0, 255).to(torch.uint8)


def _product(bytes_: Tensor, factors: Tensor, unit: int) -> Tensor:
    """bytes · factors, rounded before anything is added to it, as Pillow does.

    A compiler may join a product and a sum into one operation that rounds once. Then the factor is taken in two parts,
    a multiple of 1/unit and the rest: their products with a byte are exact, and only our own sum of them is rounded.
    """
    if not torch.compiler.is_compiling():
        return bytes_ * factors
    coarse = torch.floor(factors * unit) / unit
    return bytes_ * coarse + bytes_ * (factors - coarse)


def _luma(images: Tensor) -> Tensor:
    """Pillow's conversion of RGB to "L", (n, 1, H, W) in int32; a single channel is its own."""
    if images.shape[1] == 1:
        return images.to(torch.int32)
    red, green, blue = torch.split(images.to(torch.int32), 1, dim=1)
    weighted = (red * 19595).add_(green, alpha=38470).add_(blue, alpha=7471)
    return weighted.add_(0x8000).bitwise_right_shift_(16)


def greyed(images: Tensor) -> Tensor:
    """The dull image of `ImageEnhance.Color`, in float32. One channel is grey already: there, colour does nothing."""
    return _luma(images).to(torch.float32).expand(images.shape)


def smoothed(images: Tensor) -> Tensor:
    """The dull image of `ImageEnhance.Sharpness`, in float32: Pillow's filter SMOOTH.

    Means with the weights (1 1 1; 1 5 1; 1 1 1)/13; the border stays as it is. Pillow adds in another order, which
    does not matter: a whole number over 13 is never near a half.
    """
    pixels = images.to(torch.float32)
    if len(pixels) == 0 or min(pixels.shape[2:]) < 3:
        return pixels
    width = pixels.shape[3]
    # All lines of all images as one long line, which is fast; sums across the ends of a line end up on the border.
    line = pixels.reshape(-1)
    sums = line[:-2] + line[1:-1]
    sums += line[2:]
    sums = (sums[: -2 * width] + sums[width:-width]).add_(sums[2 * width :])
    sums.add_(line[width + 1 : -width - 1], alpha=4).add_(6.5).mul_(1 / 13).floor_()
    means = torch.nn.functional.pad(sums, (width + 1, width + 1)).reshape(pixels.shape)
    pixels[..., 1:-1, 1:-1] = means[..., 1:-1, 1:-1]
    return pixels


def jitter(images: Tensor, factors: Tensor) -> Tensor:
    """Float images after brightness, contrast and saturation times these factors, (n, 3); what leaves [0, 1] is cut."""
    brightness, contrast, saturation = factors.to(images).T[:, :, None, None, None]
    images = (images * brightness).clamp_(0, 1)
    mean = _grey(images).mean(dim=(1, 2, 3), keepdim=True)
    images = torch.lerp(mean, images, contrast).clamp_(0, 1)
    return torch.lerp(_grey(images).expand_as(images), images, saturation).clamp_(0, 1)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] == 1:
        return images
    grey: Tensor = 0.299 * images[:, :1] + 0.587 * images[:, 1:2] + 0.114 * images[:, 2:]
    return grey
