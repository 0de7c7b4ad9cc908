"""Noise: out-distributions of any size, made to measure.

An image depends on (seed, index) and on nothing else, so the clean, the attacked and the certified pass see the same
images, and a small set is the beginning of a bigger one with the same seed.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from prood.data.images import ImageSet, Shape
from prood.data.order import generator
from prood.data.sources import noise_source
from prood.errors import BadValue


@noise_source("uniform", description="every pixel uniform and independent")
def uniform_noise(count: int, shape: Shape, seed: int) -> ImageSet:
    """Every byte uniform in 0 … 255, independent of all others."""

    def image(random: torch.Generator) -> Tensor:
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)

    return _images("uniform", count, shape, seed, image)


@noise_source("smooth", description="uniform noise, blurred and stretched to the full range (paper, App. D)")
def smooth_noise(count: int, shape: Shape, seed: int) -> ImageSet:
    """Smooth noise of the paper's App. D, after Bitterwolf et al. (2020).

    Uniform noise, filtered in each channel by a Gaussian whose width σ ~ U[1, 2.5] is drawn for each image, then
    x' = (x − min x) / (max x − min x) over all channels of the image, so that 0 and 255 both occur.
    """
    if math.prod(shape) == 1:
        raise BadValue("smooth noise of a single pixel has no range to stretch: ask for a bigger image")

    def image(random: torch.Generator) -> Tensor:
        sigma = 1 + 1.5 * torch.rand((), generator=random, dtype=torch.float64).item()
        noise = gaussian_filter(torch.rand(shape, generator=random, dtype=torch.float64), sigma)
        stretched = (noise - noise.min()) / (noise.max() - noise.min())
        return (stretched * 255).round().to(torch.uint8)

    return _images("smooth", count, shape, seed, image)


def gaussian_filter(images: Tensor, sigma: float) -> Tensor:
    """The last two axes filtered by a Gaussian that is cut at 4σ; beyond the border the nearest pixel goes on.

    The same as scipy.ndimage.gaussian_filter with mode="nearest" and truncate=4.
    """
    height, width = images.shape[-2:]
    return _filter_matrix(height, sigma).to(images) @ images @ _filter_matrix(width, sigma).to(images).T


def _filter_matrix(size: int, sigma: float) -> Tensor:
    """The filter along one axis as a matrix: row i holds the weight of every pixel in the output pixel i."""
    radius = int(4 * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    weights /= weights.sum()
    reached = (torch.arange(size)[:, None] + offsets).clamp(0, size - 1)
    return torch.zeros(size, size, dtype=torch.float64).scatter_add_(1, reached, weights.expand(size, -1))


def _images(name: str, count: int, shape: Shape, seed: int, image: Callable[[torch.Generator], Tensor]) -> ImageSet:
    if count < 1:
        raise BadValue(f"cannot make {count} images of noise: ask for at least 1")
    if len(shape) != 3 or min(shape) < 1:
        raise BadValue(f"cannot make noise of shape {tuple(shape)}: give (C, H, W)")
    most = 2**33 // math.prod(shape)  # in 8 GiB: 2.8 million of CIFAR's size
    if count > most:
        raise BadValue(f"{count:,} images of noise do not fit in memory: ask for at most {most:,} of this size")
    images = torch.empty(count, *shape, dtype=torch.uint8)
    for index in range(count):
        images[index] = image(generator(seed, int.from_bytes(name.encode()), index))
    return ImageSet(name, images)
