"""Restricted ImageNet and its complement, two halves of ILSVRC2012.

Russakovsky et al., ImageNet large scale visual recognition challenge, 2015. The nine groups of classes are those of
Tsipras et al., Robustness may be at odds with accuracy, 2019; what lies in none of them is NotR.ImgNet.
"""

import re
from pathlib import Path

import torch

from prood.data.formats.folder import Tree, find_pictures, subfolders
from prood.data.public.known import known
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
_FOLDERS = {"train": "train", "test": "val"}
_SHAPE = (3, 224, 224)


@known("rimgnet")
def rimgnet(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root = folder / _FOLDERS[split]
    ids = _ids(root)
    label = {
        ids[number]: place for place, (first, last) in enumerate(GROUPS.values()) for number in range(first, last + 1)
    }
    tree = Tree(root, find_pictures(root, *sorted(label)), shape or _SHAPE)
    labels = torch.tensor([label[file.partition("/")[0]] for file in tree.files])
    return StoredSet(f"rimgnet:{split}", tree, tree.shape, labels, tuple(GROUPS))


@known("not-rimgnet")
def not_rimgnet(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root = folder / _FOLDERS[split]
    taken = {number for first, last in GROUPS.values() for number in range(first, last + 1)}
    others = [wnid for number, wnid in enumerate(_ids(root)) if number not in taken]
    tree = Tree(root, find_pictures(root, *others), shape or _SHAPE)
    return StoredSet(f"not-rimgnet:{split}", tree, tree.shape)


def _ids(root: Path) -> list[str]:
    """The 1,000 WordNet ids in order. One folder too few, and all later classes would be taken for their neighbours."""
    ids = [name for name in subfolders(root) if re.fullmatch(r"n\d{8}", name)]
    if len(ids) != _CLASSES:
        raise Damaged(
            f"{root} holds {len(ids)} class folders such as n01440764 and not {_CLASSES:,}: "
            "unpack ILSVRC2012 with one folder a class"
        )
    return ids
