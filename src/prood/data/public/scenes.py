"""Scenes, out-distributions to test with.

LSUN: Yu et al., 2015. Its crops and resized pictures and those of iSUN are the files of ODIN (Liang et al., 2018).
Places365: Zhou et al., Places: a 10 million image database for scene recognition, 2017.
"""

from pathlib import Path

from prood.data.catalog import Download, Facts, Public
from prood.data.formats.folder import Tree, find_pictures
from prood.data.formats.lsun import LmdbReader
from prood.data.sources import Shape, public_source
from prood.data.stored import StoredSet

_PHOTOGRAPH = (3, 224, 224)
_SMALL = (3, 32, 32)
_ODIN = "https://github.com/facebookresearch/odin"
_DROPBOX = "https://www.dropbox.com/s/raw"


@public_source(
    "lsun-classroom",
    description="LSUN: 300 classrooms, photographs",
    splits=("test",),
    about=Public(
        title="LSUN, classrooms (validation)",
        licence="none given",
        page="https://www.yf.io/p/lsun",
        bytes=6_500_000,
        folder="lsun-classroom",
        downloads=(Download("http://dl.yf.io/lsun/scenes/classroom_val_lmdb.zip", 6_000_000),),
        facts={"test": Facts(300)},
    ),
)
def lsun_classroom(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    reader = LmdbReader(folder / "classroom_val_lmdb", shape or _PHOTOGRAPH)
    return StoredSet(f"lsun-classroom:{split}", reader, reader.shape)


@public_source(
    "lsun-crop",
    description="LSUN: crops of scenes, 32×32",
    splits=("test",),
    about=Public(
        title="LSUN (crop), of ODIN",
        licence="none given",
        page=_ODIN,
        bytes=45_000_000,
        folder="lsun-crop",
        downloads=(
            Download(f"{_DROPBOX}/fhtsw1m3qxlwj6h/LSUN.tar.gz", 38_000_000, "md5:458a0a0ab8e5f1cb4516d7400568e460"),
        ),
        facts={"test": Facts(10_000)},
    ),
)
def lsun_crop(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    """Pictures of 36×36, of which the centre is used."""
    root = folder / "LSUN" / "test"
    tree = Tree(root, find_pictures(root), shape or _SMALL, size="crop")
    return StoredSet(f"lsun-crop:{split}", tree, tree.shape)


@public_source(
    "lsun-resize",
    description="LSUN: scenes scaled down, 32×32",
    splits=("test",),
    about=Public(
        title="LSUN (resize), of ODIN",
        licence="none given",
        page=_ODIN,
        bytes=40_000_000,
        folder="lsun-resize",
        downloads=(
            Download(
                f"{_DROPBOX}/moqh2wh8696c3yl/LSUN_resize.tar.gz", 30_000_000, "md5:278b7b31c8cb7e804a1465a8ce03a2dc"
            ),
        ),
        facts={"test": Facts(10_000)},
    ),
)
def lsun_resize(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    return _tree(f"lsun-resize:{split}", folder / "LSUN_resize" / "LSUN_resize", shape or _SMALL)


@public_source(
    "isun",
    description="iSUN: scenes scaled down, 32×32",
    splits=("test",),
    about=Public(
        title="iSUN, of ODIN",
        licence="none given",
        page=_ODIN,
        bytes=36_000_000,
        folder="isun",
        downloads=(Download(f"{_DROPBOX}/ssz7qxfqae0cca5/iSUN.tar.gz", 26_000_000),),
        facts={"test": Facts(8_925)},
    ),
)
def isun(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    return _tree(f"isun:{split}", folder / "iSUN" / "iSUN_patches", shape or _SMALL)


@public_source(
    "places365",
    description="Places365: scenes of 365 kinds, photographs",
    splits=("test",),
    about=Public(
        title="Places365 (validation, small pictures)",
        licence="non-commercial research and education",
        page="http://places2.csail.mit.edu",
        bytes=525_158_400,
        folder="places365",
        downloads=(
            Download(
                "http://data.csail.mit.edu/places/places365/val_256.tar",
                525_158_400,
                "md5:e27b17d8d44f4af9a78502beb927f808",
            ),
        ),
        facts={"test": Facts(36_500)},
    ),
)
def places365(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    return _tree(f"places365:{split}", folder / "val_256", shape or _PHOTOGRAPH)


def _tree(name: str, root: Path, shape: Shape) -> StoredSet:
    return StoredSet(name, Tree(root, find_pictures(root), shape), shape)
