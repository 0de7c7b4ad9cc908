"""Rows of an image set by its name, such as `digits:test` or `folder:photos/test`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from prood.data import Images, find, open_set
from prood.data.images import Shape
from prood.errors import Mismatch, ProodError
from prood.scoring.pictures import Fault


def opened(name: str, shape: Shape | None) -> Images:
    """The set, of a size that the model takes; without a split, its test images."""
    images = open_set(name, shape=shape, split="test")
    if shape is not None and images.shape != shape:
        raise Mismatch(f"{name} has images of shape {images.shape}, and the model takes {shape}")
    return images


def absolute(name: str) -> str:
    """The same set from any folder: names such as `npz:PATH` hold a path."""
    key, _, path = name.partition(":")
    return f"{key}:{os.path.abspath(os.path.expanduser(path))}" if find(name).splits == ("PATH",) and path else name


def rows(
    name: str, numbers: Sequence[int], size: int, shape: Shape | None
) -> Iterator[tuple[list[tuple[str, int | None]], list[Any]]]:
    """These rows as arrays, a damaged picture as what is wrong with it."""
    images = opened(name, shape)
    for start in range(0, len(numbers), size):
        part = numbers[start : start + size]
        try:
            found: list[Any] = list(images.take(part).numpy())
        except ProodError:  # of which row, only looking at one after the other tells
            found = [_one(images, row) for row in part]
        yield [(name, row) for row in part], found


def _one(images: Images, row: int) -> Any:
    try:
        return images.take([row])[0].numpy()
    except ProodError as error:
        return Fault(str(error))
