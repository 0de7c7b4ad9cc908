"""Photographs of one kind of thing, out-distributions to test with: textures, flowers, aircraft, cars.

Textures: Cimpoi et al., Describing textures in the wild, 2014. Flowers: Nilsback and Zisserman, 2008. Aircraft: Maji
et al., Fine-grained visual classification of aircraft, 2013. Cars: Krause et al., 2013. Their labels are not read.
"""

from pathlib import Path

import numpy as np

from prood.data.catalog import Download, Facts, Public
from prood.data.formats.folder import Tree, find_pictures, listed
from prood.data.formats.matlab import read_mat
from prood.data.sources import Shape, public_source
from prood.data.stored import StoredSet
from prood.errors import Damaged

_SHAPE = (3, 224, 224)
_OXFORD = "https://www.robots.ox.ac.uk/~vgg/data"
_BANNER = 20  # pixel rows at the bottom of a picture of an aircraft, which name the photographer


@public_source(
    "textures",
    description="Describable Textures, photographs",
    splits=("train", "validation", "test"),
    about=Public(
        title="Describable Textures Dataset (DTD), partition 1",
        licence="for research purposes",
        page=f"{_OXFORD}/dtd/",
        bytes=640_000_000,
        folder="textures",
        downloads=(
            Download(f"{_OXFORD}/dtd/download/dtd-r1.0.1.tar.gz", 625_239_812, "md5:fff73e5086ae6bdbea199a49dfb8a4c1"),
        ),
        facts={"train": Facts(1_880), "validation": Facts(1_880), "test": Facts(1_880)},
    ),
)
def textures(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root = folder / "dtd" / "images"
    names = folder / "dtd" / "labels" / f"{_short(split)}1.txt"
    tree = Tree(root, listed(root, _lines(names), names), shape or _SHAPE)
    return StoredSet(f"textures:{split}", tree, tree.shape)


@public_source(
    "flowers",
    description="Oxford Flowers 102, photographs",
    splits=("train", "validation", "test"),
    about=Public(
        title="Oxford Flowers 102",
        licence="none given",
        page=f"{_OXFORD}/flowers/102/",
        bytes=350_000_000,
        folder="flowers",
        downloads=(
            Download(f"{_OXFORD}/flowers/102/102flowers.tgz", 344_862_509, "md5:52808999861908f626f3c1f4e79d11fa"),
            Download(f"{_OXFORD}/flowers/102/setid.mat", 15_000, "md5:a5357ecc9cb78c4bef273ce3793fc85c"),
        ),
        facts={"train": Facts(1_020), "validation": Facts(1_020), "test": Facts(6_149)},
    ),
)
def flowers(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root, path = folder / "jpg", folder / "setid.mat"
    variable = {"train": "trnid", "validation": "valid", "test": "tstid"}[split]
    numbers = read_mat(path, variable)[variable].ravel()
    if not np.issubdtype(numbers.dtype, np.number) or (numbers != np.round(numbers)).any():
        raise Damaged(f"{path} holds no picture numbers in '{variable}': fetch the set again")
    names = [f"image_{int(number):05d}.jpg" for number in numbers]
    tree = Tree(root, listed(root, names, path), shape or _SHAPE)
    return StoredSet(f"flowers:{split}", tree, tree.shape)


@public_source(
    "aircraft",
    description="FGVC Aircraft, photographs",
    splits=("train", "validation", "test"),
    about=Public(
        title="FGVC Aircraft 2013b",
        licence="non-commercial research",
        page=f"{_OXFORD}/fgvc-aircraft/",
        bytes=2_770_000_000,
        folder="aircraft",
        downloads=(
            Download(
                f"{_OXFORD}/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
                2_753_340_328,
                "md5:d4acdd33327262359767eeaa97a4f732",
            ),
        ),
        facts={"train": Facts(3_334), "validation": Facts(3_333), "test": Facts(3_333)},
    ),
)
def aircraft(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    data = folder / "fgvc-aircraft-2013b" / "data"
    root, names = data / "images", data / f"images_{_short(split)}.txt"
    files = listed(root, [f"{number}.jpg" for number in _lines(names)], names)
    tree = Tree(root, files, shape or _SHAPE, cut=_BANNER)
    return StoredSet(f"aircraft:{split}", tree, tree.shape)


@public_source(
    "cars",
    description="Stanford Cars, photographs",
    splits=("train", "test"),
    about=Public(
        title="Stanford Cars",
        licence="non-commercial research",
        page="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
        bytes=1_960_000_000,
        folder="cars",
        by_hand="the authors' links to Stanford Cars are dead; get cars_train.tgz and cars_test.tgz from a copy and "
        "unpack them so that cars_train/ and cars_test/ hold the pictures.",
        facts={"train": Facts(8_144), "test": Facts(8_041)},
    ),
)
def cars(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    root = folder / f"cars_{split}"
    tree = Tree(root, find_pictures(root), shape or _SHAPE)
    return StoredSet(f"cars:{split}", tree, tree.shape)


def _short(split: str) -> str:
    return "val" if split == "validation" else split


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, ValueError) as error:
        raise Damaged(f"cannot read the list of pictures {path}: fetch the set again ({error})") from error
