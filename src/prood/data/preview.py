"""A contact sheet: many images of a set in one picture, to see what it is."""

import math
import re
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from prood import atomic
from prood.data.formats.keeping import OtherShape
from prood.data.sources import find, open_set
from prood.errors import BadValue, NoAccess, Unsupported

_WIDTH = 1000  # of a sheet, about
_GAP = 2
_SQUARES = (3, 96, 96)


def preview(
    name: str,
    path: Path | None = None,
    *,
    count: int = 100,
    seed: int = 0,
    scale: int | None = None,
    like: str | None = None,
) -> Path:
    """Write a sheet of a seeded choice of images as a PNG and return its path, by default the set's name.

    `like` names the set whose image size noise and photographs of all sizes take. Without it, noise is 32×32 in colour,
    and photographs are squares of 96 pixels.
    """
    path = path or Path(re.sub(r"[^\w.-]", "-", name) + ".png")
    if path.suffix.lower() != ".png" or path.is_dir():
        raise BadValue(f"cannot write the preview to {path}: name a file that ends in .png")
    shape = (3, 32, 32) if find(name).splits == () else None  # noise has none of its own
    shape = shape if like is None else open_set(like).shape
    try:
        images = open_set(name, shape=shape, count=count, seed=seed).subset(count, seed).load().images
    except OtherShape:  # a folder of photographs: all of them are shown as squares
        images = open_set(name, shape=_SQUARES).subset(count, seed).load().images
    picture = sheet(images, scale)
    try:
        with atomic.replacing(path) as aside:
            picture.save(aside, format="PNG")
    except OSError as error:
        raise NoAccess(f"cannot write the preview to {path}: {error.strerror or error}") from None
    return path


def sheet(images: Tensor, scale: int | None = None) -> Image.Image:
    """Images (N, C, H, W), uint8, in rows of a near-square grid, each pixel enlarged to `scale`×`scale`."""
    count, channels, height, width = images.shape
    if channels not in (1, 3):
        raise Unsupported(f"cannot draw images of {channels} channels: a preview shows grey or RGB images")
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    scale = scale or max(1, ((_WIDTH - _GAP) // columns - _GAP) // width)
    tiles = images.repeat_interleave(scale, 2).repeat_interleave(scale, 3)
    high, wide = height * scale + _GAP, width * scale + _GAP
    canvas = torch.full((channels, rows * high + _GAP, columns * wide + _GAP), 255, dtype=torch.uint8)
    for place, tile in enumerate(tiles):
        top, left = _GAP + place // columns * high, _GAP + place % columns * wide
        canvas[:, top : top + height * scale, left : left + width * scale] = tile
    pixels = canvas.permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(pixels if channels == 3 else pixels[:, :, 0])
