"""What is known about each public set, from the table `sets.toml`; and the sets that are trees of pictures.

Some of these are a part of a tree: Restricted ImageNet and its complement are two halves of ILSVRC2012. The nine groups
of classes are those of Tsipras et al., Robustness may be at odds with accuracy, 2019; what lies in none is NotR.ImgNet.
"""

import re
import tomllib
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prood.data.catalog import AGAIN, Download, Facts, Package, Public
from prood.data.formats import reading
from prood.data.formats.arrays import read_mat
from prood.data.formats.folder import Tree, find_pictures, listed, subfolders
from prood.data.images import Shape
from prood.data.sources import ReadPublic, public_source
from prood.data.stored import StoredSet
from prood.errors import Damaged

_SHAPE = (3, 224, 224)
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
_SETS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("sets.toml").read_text(encoding="utf-8"))


def known(name: str) -> Callable[[ReadPublic], ReadPublic]:
    """Register a reader of the public set of this name: a function of (folder, split, shape)."""
    entry = _SETS[name]
    about = Public(
        **{key: entry[key] for key in ("title", "licence", "page", "bytes")},
        folder=entry.get("folder", name),
        downloads=tuple(Download(**download) for download in entry.get("downloads", ())),
        package=Package(**entry["package"]) if "package" in entry else None,
        by_hand=entry.get("by_hand", ""),
        facts={split: _facts(**facts) for split, facts in entry.get("facts", {}).items()},
    )
    return public_source(name, description=entry["description"], splits=tuple(entry["splits"]), about=about)


def _facts(count: int, classes: int | None = None, **lists: list[Any]) -> Facts:
    if classes is not None:
        lists["per_class"] = [count // classes] * classes
    return Facts(count, **{name: tuple(values) for name, values in lists.items()})


def read_pictures(name: str, folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    """A set that is a tree of pictures."""
    entry = _SETS[name]
    root = folder / entry["pictures"].format(split=split)
    tree = Tree(root, find_pictures(root), shape or (3, entry["side"], entry["side"]), entry.get("size", "fit"))
    return StoredSet(f"{name}:{split}", tree, tree.shape)


for _name, _entry in _SETS.items():
    if "pictures" in _entry:
        known(_name)(partial(read_pictures, _name))


@known("rimgnet")
def rimgnet(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root, _, label = _imagenet(folder, split)
    tree = Tree(root, find_pictures(root, *sorted(label)), shape or _SHAPE)
    labels = torch.tensor([label[file.partition("/")[0]] for file in tree.files])
    return StoredSet(f"rimgnet:{split}", tree, tree.shape, labels, tuple(GROUPS))


@known("not-rimgnet")
def not_rimgnet(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root, ids, label = _imagenet(folder, split)
    tree = Tree(root, find_pictures(root, *(wnid for wnid in ids if wnid not in label)), shape or _SHAPE)
    return StoredSet(f"not-rimgnet:{split}", tree, tree.shape)


def _imagenet(folder: Path, split: str) -> tuple[Path, list[str], dict[str, int]]:
    """The folder of a split, the 1,000 WordNet ids in order, and the group of those that are in one."""
    root = folder / {"train": "train", "test": "val"}[split]
    ids = [name for name in subfolders(root) if re.fullmatch(r"n\d{8}", name)]
    if len(ids) != 1000:  # with one too few, all later classes would be taken for their neighbours
        fault = f"holds {len(ids)} class folders such as n01440764 and not 1,000"
        raise Damaged(f"{root} {fault}: unpack ILSVRC2012 with one folder a class")
    group = {wnid: place for place, (first, last) in enumerate(GROUPS.values()) for wnid in ids[first : last + 1]}
    return root, ids, group


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
        raise Damaged(f"{path} does not hold picture numbers in '{variable}': {AGAIN}")
    names = [f"image_{int(number):05d}.jpg" for number in numbers]
    tree = Tree(root, listed(root, names, path), shape or _SHAPE)
    return StoredSet(f"flowers:{split}", tree, tree.shape)


@known("aircraft")
def aircraft(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    data = folder / "fgvc-aircraft-2013b" / "data"
    root, names = data / "images", data / f"images_{_short(split)}.txt"
    files = listed(root, [f"{number}.jpg" for number in _lines(names)], names)
    tree = Tree(root, files, shape or _SHAPE, cut=20)  # the banner, which names the photographer
    return StoredSet(f"aircraft:{split}", tree, tree.shape)


def _short(split: str) -> str:
    return "val" if split == "validation" else split


def _lines(path: Path) -> list[str]:
    with reading(f"the list of pictures {path}", AGAIN):
        return path.read_text(encoding="utf-8").split()
