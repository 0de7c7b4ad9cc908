"""Colour and sharpness: blends of an image with a duller one, as `PIL.ImageEnhance` makes them."""

import torch
from torch import Tensor


def blend(dull: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    """`Image.blend`: dull + factor · (image − dull) in float32, clipped to bytes and cut off; factors in [0, 2]."""
    change = images - dull
    return product(change, factors.to(torch.float32), 2**12).add_(dull).clamp_(0, 255).to(torch.uint8)


def product(bytes_: Tensor, factors: Tensor, unit: int) -> Tensor:
    """bytes · factors, rounded before anything is added to it, as Pillow does.

    A compiler may join a product and a sum into one operation that rounds once. Then the factor is taken in two parts,
    a multiple of 1/unit and the rest: their products with a byte are exact, and only our own sum of them is rounded.
    """
    if not torch.compiler.is_compiling():
        return bytes_ * factors
    coarse = torch.floor(factors * unit) / unit
    return bytes_ * coarse + bytes_ * (factors - coarse)


def luma(images: Tensor) -> Tensor:
    """Pillow's conversion of RGB to "L", (n, 1, H, W) in int32; a single channel is its own."""
    if images.shape[1] == 1:
        return images.to(torch.int32)
    red, green, blue = torch.split(images.to(torch.int32), 1, dim=1)
    weighted = (red * 19595).add_(green, alpha=38470).add_(blue, alpha=7471)
    return weighted.add_(0x8000).bitwise_right_shift_(16)


def greyed(images: Tensor) -> Tensor:
    """The dull image of `ImageEnhance.Color`, in float32. One channel is grey already: there, colour does nothing."""
    return luma(images).to(torch.float32).expand(images.shape)


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
