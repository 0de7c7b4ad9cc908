"""Sets of photographs that are trees of pictures with a list of what belongs to them, or with labels.

Restricted ImageNet and its complement are two halves of ILSVRC2012. Its nine groups of classes are those of Tsipras et
al., Robustness may be at odds with accuracy, 2019; what lies in none of them is NotR.ImgNet.
"""

import re
from pathlib import Path

import numpy as np
import torch

from prood.data.formats.folder import Tree, find_pictures, listed, subfolders
from prood.data.public.known import AGAIN, known
from prood.data.public.svhn import read_mat
from prood.data.sources import Shape
from prood.data.stored import StoredSet
from prood.errors import Damaged

# First and last class, both included; a class is the rank of its WordNet id among the 1,000.
GROUPS = {
    "dog": (151, 268),
    "cat": (281, 285),
    "frog": (30, 32),
    "turtle": (33, 37),
    "bird": (80, 100),
    "primate": (365, 382),
    "fish": (389, 397),
    "crab": (118, 121),
    "insect": (300, 319),
}
_CLASSES = 1000
_SHAPE = (3, 224, 224)
_BANNER = 20  # pixel rows at the bottom of a picture of an aircraft, which name the photographer


@known("rimgnet")
def rimgnet(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root, ids = _imagenet(folder, split)
    label = {wnid: place for place, (first, last) in enumerate(GROUPS.values()) for wnid in ids[first : last + 1]}
    tree = Tree(root, find_pictures(root, *sorted(label)), shape or _SHAPE)
    labels = torch.tensor([label[file.partition("/")[0]] for file in tree.files])
    return StoredSet(f"rimgnet:{split}", tree, tree.shape, labels, tuple(GROUPS))


@known("not-rimgnet")
def not_rimgnet(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root, ids = _imagenet(folder, split)
    taken = {number for first, last in GROUPS.values() for number in range(first, last + 1)}
    others = [wnid for number, wnid in enumerate(ids) if number not in taken]
    tree = Tree(root, find_pictures(root, *others), shape or _SHAPE)
    return StoredSet(f"not-rimgnet:{split}", tree, tree.shape)


def _imagenet(folder: Path, split: str) -> tuple[Path, list[str]]:
    """The folder of a split, and the 1,000 WordNet ids in order.

    One folder too few, and all later classes would be taken for their neighbours.
    """
    root = folder / {"train": "train", "test": "val"}[split]
    ids = [name for name in subfolders(root) if re.fullmatch(r"n\d{8}", name)]
    if len(ids) != _CLASSES:
        raise Damaged(
            f"{root} holds {len(ids)} class folders such as n01440764 and not {_CLASSES:,}: "
            "unpack ILSVRC2012 with one folder a class"
        )
    return root, ids


@known("textures")
def textures(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root = folder / "dtd" / "images"
    names = folder / "dtd" / "labels" / f"{_short(split)}1.txt"
    tree = Tree(root, listed(root, _lines(names), names), shape or _SHAPE)
    return StoredSet(f"textures:{split}", tree, tree.shape)


@known("flowers")
def flowers(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root, path = folder / "jpg", folder / "setid.mat"
    variable = {"train": "trnid", "validation": "valid", "test": "tstid"}[split]
    numbers = read_mat(path, variable)[variable].ravel()
    if not np.issubdtype(numbers.dtype, np.number) or (numbers != np.round(numbers)).any():
        raise Damaged(f"{path} holds no picture numbers in '{variable}': {AGAIN}")
    names = [f"image_{int(number):05d}.jpg" for number in numbers]
    tree = Tree(root, listed(root, names, path), shape or _SHAPE)
    return StoredSet(f"flowers:{split}", tree, tree.shape)


@known("aircraft")
def aircraft(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    data = folder / "fgvc-aircraft-2013b" / "data"
    root, names = data / "images", data / f"images_{_short(split)}.txt"
    files = listed(root, [f"{number}.jpg" for number in _lines(names)], names)
    tree = Tree(root, files, shape or _SHAPE, cut=_BANNER)
    return StoredSet(f"aircraft:{split}", tree, tree.shape)


def _short(split: str) -> str:
    return "val" if split == "validation" else split


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, ValueError) as error:
        raise Damaged(f"cannot read the list of pictures {path} ({error}): {AGAIN}") from error
