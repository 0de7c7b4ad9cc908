"""Photographs of one kind of thing, out-distributions to test with: textures, flowers, aircraft."""

from pathlib import Path

import numpy as np

from prood.data.formats.folder import Tree, listed
from prood.data.formats.matlab import read_mat
from prood.data.public.known import known
from prood.data.sources import Shape
from prood.data.stored import StoredSet
from prood.errors import Damaged

_SHAPE = (3, 224, 224)
_BANNER = 20  # pixel rows at the bottom of a picture of an aircraft, which name the photographer


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
        raise Damaged(f"{path} holds no picture numbers in '{variable}': fetch the set again")
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
        raise Damaged(f"cannot read the list of pictures {path}: fetch the set again ({error})") from error
