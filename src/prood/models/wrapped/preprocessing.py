"""From the images of the joint model to what a classifier takes: resize, cut, grey or colour, normalise.

Every step is a torch operation with a gradient, so an attack on the joint model goes through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prood.errors import BadValue, Damaged, Mismatch, UnknownName

INTERPOLATIONS = ("bilinear", "bicubic", "nearest")
_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow makes grey of colour
_LARGEST = torch.finfo(torch.float32).max  # what is larger becomes infinite in float32


@dataclass(frozen=True)
class Preprocessing:
    """What a classifier does to an image in [0, 1] before its first layer.

    `image` is the shape (channels, height, width) that it takes. The image is resized to `resize`, which is the length
    of its shorter side or (height, width), and its centre is cut out; without `resize` it is stretched to the shape.
    Then each channel becomes (x − mean)/std.
    """

    image: tuple[int, int, int]
    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        channels, height, width = self.image
        if channels not in (1, 3) or min(height, width) < 1:
            raise BadValue(f"a classifier takes grey or colour images, (1 or 3, height, width), not {self.image}")
        if self.interpolation not in INTERPOLATIONS:
            choices = f"choose one of {', '.join(INTERPOLATIONS)}, the nearest to the model's own"
            raise UnknownName(f"unknown interpolation {self.interpolation!r}: {choices}")
        sides = (self.resize,) if isinstance(self.resize, int) else self.resize or ()
        if any(side < 1 for side in sides):
            raise BadValue(f"an image is resized to sides of one pixel at least, not {self.resize}")
        if not all(value > 0 for value in self.std):
            raise BadValue(f"every std is positive, not {self.std}")
        for name, values in {"mean": self.mean, "std": self.std}.items():
            if len(values) not in (1, channels):
                raise BadValue(f"{name} has {len(values)} numbers: give one, or one for each of {channels} channels")
            if not all(abs(value) <= _LARGEST for value in values):  # written so that NaN fails it
                raise BadValue(f"every {name} is a finite number, not {values}: give the classifier's own")

    @property
    def uncut(self) -> tuple[int, int]:
        """Height and width of the images from which the centre is cut without any resizing."""
        height, width = self.image[1:]
        size = self.resize or (height, width)
        if isinstance(size, int):
            short = min(height, width)
            size = size * height // short, size * width // short
        return size if size[0] >= height and size[1] >= width else (height, width)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Preprocessing:
        """From what `spec` made and JSON kept, lists for tuples."""
        try:
            kept: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
            }
            return cls(**kept)
        except (TypeError, ValueError) as error:
            raise Damaged(f"the preprocessing of a wrapped classifier cannot be read: {error}") from None

    def spec(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def __str__(self) -> str:
        channels, height, width = self.image
        words = [f"{channels}×{height}×{width}"]
        if self.resize is not None and self.resize not in (height, (height, width)):
            size = self.resize if isinstance(self.resize, int) else "×".join(map(str, self.resize))
            words.append(f"cut from {size}")
        words.append(self.interpolation)
        plain = set(self.mean) == {0.0} and set(self.std) == {1.0}
        mean, std = (" ".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
        words.append("pixels in [0, 1]" if plain else f"mean {mean}, std {std}")
        return ", ".join(words)

    def fitted(self, images: Tensor) -> Tensor:
        """The images in the classifier's shape, still in [0, 1]."""
        channels, height, width = self.image
        size = self.resize or (height, width)
        if isinstance(size, int):
            short = min(images.shape[-2:])
            size = size * images.shape[-2] // short, size * images.shape[-1] // short
        images = _resized(images, size, self.interpolation)
        if images.shape[-2] < height or images.shape[-1] < width:
            shape = "×".join(map(str, images.shape[-2:]))
            raise BadValue(f"an image of {shape} is too small to cut {height}×{width} from: resize it to more")
        # Halves are rounded as torchvision and timm do it.
        top, left = round((images.shape[-2] - height) / 2), round((images.shape[-1] - width) / 2)
        return _recoloured(images[..., top : top + height, left : left + width], channels)


def _resized(images: Tensor, size: tuple[int, int], interpolation: str) -> Tensor:
    if tuple(images.shape[-2:]) == size:
        return images
    if interpolation == "nearest":
        return F.interpolate(images, size, mode="nearest-exact")
    # Columns first, then rows, as Pillow does it: cubic curves overshoot, and what is stored as bytes cannot.
    for step in ((images.shape[-2], size[1]), size):
        if tuple(images.shape[-2:]) != step:
            images = F.interpolate(images, step, mode=interpolation, antialias=True).clamp(0, 1)
    return images


def _recoloured(images: Tensor, channels: int) -> Tensor:
    given = images.shape[1]
    if given == channels:
        return images
    if given == 1:
        return images.expand(-1, channels, -1, -1)
    if (given, channels) == (3, 1):
        weights = torch.tensor(_LUMA, dtype=images.dtype, device=images.device)
        return (images * weights[:, None, None]).sum(1, keepdim=True)
    raise Mismatch(f"images with {given} channels cannot be made into images with {channels}")
