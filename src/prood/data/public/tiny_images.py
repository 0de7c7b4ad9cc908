"""80 Million Tiny Images: the out-distribution that the paper trains with next to CIFAR.

Torralba et al., 80 million tiny images: a large data set for nonparametric object and scene recognition, 2008.
"""

from pathlib import Path

import torch

from prood.data.formats.tiny_images import TinyImages, count_images, read_excluded
from prood.data.order import generator
from prood.data.public.known import known
from prood.data.sources import Shape
from prood.data.stored import StoredSet
from prood.errors import Damaged, NotFound

FILE = "tiny_images.bin"
LISTS = "*cifar_idxs.txt"
BOUNDARY = 1_000_000
_TEST = 1_000
_SEED = 0


def read_tiny_images(folder: Path, split: str, boundary: int = BOUNDARY) -> StoredSet:
    """Train: all images from `boundary` on. Test: a fixed choice of 1,000 before it, or all if there are fewer.

    The images of CIFAR are left out of both. If the file ends before the boundary, it has no train split.
    """
    path = folder / FILE
    count = count_images(path)
    lists = sorted(folder.glob(LISTS))
    if split == "train" and not lists:
        raise NotFound(
            f"there is no list of the images of CIFAR in {folder}: CIFAR is a part of the Tiny Images and must not be "
            "trained on as out-distribution, so put 80mn_cifar_idxs.txt there"
        )
    excluded = read_excluded(lists, count)
    name, shape = f"tiny-images:{split}", (3, 32, 32)
    if split == "train":
        if count <= boundary:
            raise Damaged(f"{path} has {count} images, and train begins after {boundary}: copy all of it")
        return StoredSet(name, TinyImages(path, boundary, count, excluded), shape)
    stop = min(boundary, count)
    # Drawn before any image is left out, so that a list changes no more than it must.
    drawn = torch.randperm(stop, generator=generator(_SEED))
    rows = drawn[~torch.isin(drawn, torch.from_numpy(excluded))][:_TEST]
    return StoredSet(name, TinyImages(path, 0, stop, excluded[:0]), shape, rows=rows)


@known("tiny-images")
def tiny_images(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    return read_tiny_images(folder, split)
