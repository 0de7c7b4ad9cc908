"""Augmentation of a whole batch on its device, with a different draw for each image.

Drawing is apart from applying: every process draws for the global batch with the same generator and applies its own
rows, and the result for an image depends on that image and its draw alone.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from prood.errors import ProodError


@dataclass(frozen=True)
class Augment:
    """What is done to a training image, in this order.

    pad: pad with zeros and crop, i.e. move by whole pixels in [−pad, pad] along each axis.
    flip: mirror left and right, with probability 1/2.
    degrees, scale: turn about the centre by U[−degrees, degrees] and zoom by U[1 − scale, 1 + scale], in a single
    bilinear interpolation with zeros outside. Moving and mirroring are exact.
    """

    pad: int = 0
    flip: bool = False
    degrees: float = 0
    scale: float = 0

    def __post_init__(self) -> None:
        if self.pad < 0:
            raise ProodError(f"augmentation cannot pad by {self.pad} pixels: choose pad ≥ 0")
        if not 0 <= self.degrees <= 180:
            raise ProodError(f"augmentation cannot turn by ±{self.degrees}°: choose degrees from 0 to 180")
        if not 0 <= self.scale < 1:
            raise ProodError(f"augmentation cannot zoom by 1 ± {self.scale}: choose scale ≥ 0 and below 1")

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, 5) on the CPU: rows down, columns right, flip (0 or 1), degrees counter-clockwise, zoom.

        Rows and columns say where in the padded image the crop lies. All five are always drawn, so that switching
        one option leaves the others' draws alone.
        """
        # In float64, because u · (2 pad + 1) in float32 comes close to rounding up to the next integer.
        u = torch.rand(count, 5, generator=generator, dtype=torch.float64)
        moves = torch.floor(u[:, :2] * (2 * self.pad + 1)) - self.pad
        flips = (u[:, 2:3] < 0.5) & self.flip
        degrees = (2 * u[:, 3:4] - 1) * self.degrees
        zooms = 1 + (2 * u[:, 4:] - 1) * self.scale
        return torch.cat([moves, flips, degrees, zooms], dim=1).float()

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        """The augmented images; row i of `draws` belongs to image i."""
        if images.ndim != 4 or not images.is_floating_point():
            raise ProodError(f"augmentation takes float images NCHW, not {images.dtype} {tuple(images.shape)}")
        if draws.shape != (len(images), 5):
            raise ProodError(f"augmenting {len(images)} images takes {len(images)} × 5 draws, not {tuple(draws.shape)}")
        if self.pad or self.flip:
            images = _move(images, draws)
        if self.degrees or self.scale:
            images = _turn(images, draws)
        return images


def _move(images: Tensor, draws: Tensor) -> Tensor:
    """Crop of the zero-padded image and mirror: out[i, j] = in[i + rows, j + columns], j counted from the right."""
    count, channels, height, width = images.shape
    rows, columns, flips = draws[:, :3].to(images.device, torch.int64).T[:, :, None]
    across = torch.arange(width, device=images.device)
    i = torch.arange(height, device=images.device) + rows
    j = torch.where(flips == 1, width - 1 - across, across) + columns
    inside = ((i >= 0) & (i < height))[:, None, :, None] & ((j >= 0) & (j < width))[:, None, None, :]
    i = i.clamp(0, height - 1)[:, None, :, None].expand(count, channels, height, width)
    j = j.clamp(0, width - 1)[:, None, None, :].expand(count, channels, height, width)
    return torch.where(inside, images.gather(2, i).gather(3, j), 0)


def _turn(images: Tensor, draws: Tensor) -> Tensor:
    """Rotation and zoom about the centre, in pixels, so that an image that is no square is not sheared."""
    height, width = images.shape[2:]
    # The angles in float64 and the grid by elementwise arithmetic: batched sines or matrix products may round
    # differently in batches of different size, and then an image would depend on its neighbours.
    angle, zoom = draws[:, 3].double() * (math.pi / 180), draws[:, 4].double()
    cos = (angle.cos() / zoom).to(images)[:, None, None]
    sin = (angle.sin() / zoom).to(images)[:, None, None]
    y = torch.arange(height, device=images.device, dtype=images.dtype)[:, None] - (height - 1) / 2
    x = torch.arange(width, device=images.device, dtype=images.dtype) - (width - 1) / 2
    # Where output pixel (y, x) comes from; grid_sample wants half-widths as the unit and the y axis pointing down.
    grid = torch.stack([(cos * x - sin * y) * (2 / width), (sin * x + cos * y) * (2 / height)], dim=-1)
    return grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
