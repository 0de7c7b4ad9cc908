"""From a column of arrays, bytes or paths to pixels; what cannot be read is a text in its row, never an exception."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prood.data.formats.members import picture_of
from prood.data.formats.pictures import decode, fit
from prood.data.images import Shape
from prood.detector.inputs import read
from prood.errors import BadValue, Damaged, Mismatch, ProodError

COLUMNS = ("image", "bytes", "path")
"""Where images are looked for, in this order."""

Column = Sequence[Any] | NDArray[Any]
Errors = list[str | None]


@dataclass(frozen=True)
class Fault:
    """In place of an image: why there is none."""

    text: str


def column_of(names: Sequence[str], asked: str | None) -> str:
    """The name of the column that holds the images."""
    for name in COLUMNS if asked is None else (asked,):
        if name in names:
            return name
    looked = f"column {asked!r}" if asked else f"columns {', '.join(COLUMNS)}"
    raise Mismatch(f"no {looked} among {', '.join(names) or 'no columns'}: name the column with the images")


def pixels(images: Column, shape: Shape) -> tuple[Tensor, Errors]:
    """float32 (N, C, H, W) in [0, 1], grey where an image cannot be read, and for each image what is wrong with it."""
    if isinstance(images, np.ndarray) and images.dtype != object and images.ndim > 1 and len(images):
        try:
            return next(read(_own(images), shape, batch=len(images))), [None] * len(images)
        except ProodError:  # of which row, only looking at one after the other tells
            pass
    stack, errors = torch.full((len(images), *shape), 0.5), [None] * len(images)
    found: Errors = list(errors)
    for place, image in enumerate(images):
        try:
            one = fitted(image, shape)
            stack[place] = one.float() / 255 if one.dtype == torch.uint8 else one
        except ProodError as error:
            found[place] = str(error)
    return stack, found


def fitted(image: Any, shape: Shape) -> Tensor:
    """One image of the model's shape: bytes of a picture as uint8, all else as float32 in [0, 1]."""
    image = picture_of(image)
    if isinstance(image, Fault):
        raise Damaged(image.text)
    if image is None:
        raise Damaged("the row holds no image")
    if isinstance(image, bytes | bytearray | memoryview):
        return fit(decode(bytes(image), f"of {len(image)} bytes"), shape)
    if isinstance(image, str | Path):
        return fit(decode(Path(image)), shape)
    stack = list(read(_own(image), shape, batch=1))
    if len(stack) != 1 or len(stack[0]) != 1:
        raise BadValue(f"a row holds one image, not {len(stack)}")
    return stack[0][0]


def _own(image: Any) -> Any:
    """Torch warns of arrays that may not be written to, as those in Ray's store are."""
    return image.copy() if isinstance(image, np.ndarray) and not image.flags.writeable else image


def decoded(images: Column, shape: Shape) -> tuple[NDArray[np.uint8], Errors]:
    """Pictures as bytes of the model's shape, for a worker that only decodes."""
    stack, errors = np.zeros((len(images), *shape), np.uint8), list[str | None]([None] * len(images))
    for place, image in enumerate(images):
        try:
            one = fitted(image, shape)
        except ProodError as error:
            errors[place] = str(error)
        else:  # a float of an array of bytes is such a byte by 255
            stack[place] = one.numpy() if one.dtype == torch.uint8 else (one * 255).round().to(torch.uint8).numpy()
    return stack, errors
