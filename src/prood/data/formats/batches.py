"""Batches of anybody's: what a `DataLoader`, a data set of `datasets` or a generator of one's own yields.

An item is an image, a batch of images, a pair with their labels, or a dict with a column of images. Its kind
must be plain: two stacks of images in one item are refused, never guessed about.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from prood.data.formats.pictures import plain
from prood.data.images import ImageSet
from prood.errors import BadValue, Mismatch

IMAGES = ("image", "images", "img")
LABELS = ("label", "labels", "fine_label")
"""Columns by these names are looked for, in this order."""


def is_picture(cell: Any) -> bool:
    """A cell of `datasets` that is not decoded: the bytes of a picture, or its path."""
    return isinstance(cell, Mapping) and {"bytes", "path"} >= set(cell) and bool(cell)


def looks_like_images(item: Any) -> bool:
    """One image, or several; labels do not look like that."""
    if isinstance(item, Tensor | np.ndarray):
        return item.ndim >= 3
    if isinstance(item, list | tuple):
        return bool(item) and all(map(looks_like_images, item))
    return isinstance(item, Image.Image | Path | str | ImageSet) or is_picture(item)


def parts(item: Any) -> tuple[Any, Any]:
    """The images of an item and, where it has any, their labels."""
    if isinstance(item, Mapping) and not is_picture(item):
        name = _column(item, IMAGES)
        if name is None:
            found = ", ".join(map(str, item)) or "nothing"
            raise BadValue(f"an item has {found}, but none of {', '.join(IMAGES)}: rename the column of images")
        label = _column(item, LABELS)
        return item[name], None if label is None else item[label]
    if not isinstance(item, list | tuple) or not item:
        return item, None
    if looks_like_images(item):
        stacks = [one for one in item if isinstance(one, Tensor | np.ndarray) and one.ndim == 4]
        if stacks and len(item) > 1:
            raise BadValue(f"an item holds {len(item)} stacks of images: yield a single one")
        return item, None
    if looks_like_images(item[0]) and not any(map(looks_like_images, item[1:])):
        return item[0], item[1]
    kinds = ", ".join(type(one).__name__ for one in item[:4])
    raise BadValue(f"an item ({kinds}) is neither images nor images with their labels: yield images alone")


def items_of(batches: Any) -> Iterable[Any]:
    """Also of a `Dataset` of torch that only knows its length and its items by number."""
    if isinstance(batches, Dataset) and not hasattr(batches, "__iter__"):
        return (batches[place] for place in range(len(batches)))  # type: ignore[arg-type]  # which some have
    return batches  # type: ignore[no-any-return]


def gathered(name: str, batches: Iterable[Any], *, labelled: bool = True) -> ImageSet:
    """All images of all batches as one set in memory, for an evaluation; if it is `labelled`, with the labels it has.

    Pixels are bytes. Floats must be such bytes divided by 255: an augmented or normalised image has other values, and
    would not be the image that was asked for.
    """
    images: list[Tensor] = []
    labels: list[Tensor] = []
    count = 0
    for item in items_of(batches):
        found, known = parts(item)
        for one in _stacks(found):
            images.append(_bytes(one, f"image {count} of {name}"))
            count += len(one)
        if known is not None and labelled:
            labels.append(torch.as_tensor(known).reshape(-1).to(torch.int64))
        if len({tuple(one.shape[1:]) for one in images[-2:]}) > 1:
            sizes = " and ".join(str(tuple(one.shape[1:])) for one in images[-2:])
            raise Mismatch(f"{name} has images of shape {sizes}: resize them to one size")
    if not images:
        raise BadValue(f"{name} yields no images: an iterator that was read before is empty")
    together = torch.cat(labels) if labels else None
    if together is not None and len(together) != count:
        raise Mismatch(f"expected one label per image, got {len(together)} labels for {count} images in {name}")
    return ImageSet(name, torch.cat(images), together)


def _stacks(images: Any) -> Iterable[Tensor]:
    """(N, C, H, W) each."""
    if isinstance(images, ImageSet):
        return [images.images]
    if isinstance(images, list | tuple):
        return [stack for one in images for stack in _stacks(one)]
    if isinstance(images, Image.Image):
        pixels = np.array(plain(images))
        images = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    if not isinstance(images, Tensor | np.ndarray):
        raise BadValue(f"a batch to evaluate holds tensors, arrays or Pillow images, not {type(images).__name__}")
    stack = torch.as_tensor(np.ascontiguousarray(images) if isinstance(images, np.ndarray) else images)
    if stack.ndim not in (3, 4):
        raise Mismatch(f"images have the shape (N, C, H, W) or (C, H, W), not {tuple(stack.shape)}")
    return [stack if stack.ndim == 4 else stack[None]]


def _bytes(stack: Tensor, name: str) -> Tensor:
    if stack.dtype == torch.uint8:
        return stack.cpu()
    if not stack.is_floating_point():
        raise BadValue(f"{name}: pixels are uint8 or floating point, not {stack.dtype}")
    pixels = stack.detach().cpu().float()
    rounded = (pixels * 255).round().clamp(0, 255).to(torch.uint8)
    if not torch.equal(rounded.float() / 255, pixels):
        raise BadValue(f"{name}: its pixels are not bytes divided by 255: leave out augmentation and normalisation")
    return rounded


def _column(item: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if name in item), None)
