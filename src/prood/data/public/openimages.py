"""OpenImages v4 (Kuznetsova et al., 2020), an out-distribution to train with: photographs, scaled down once.

The first use at a size takes hours and leaves raw bytes in a file in `cache/`, see `formats.cache`. Once that is there
the pictures may be removed.
"""

from pathlib import Path

from prood.data.formats.cache import cached, open_cache
from prood.data.formats.folder import Tree, find_pictures
from prood.data.formats.pictures import MIXED
from prood.data.images import Shape
from prood.data.public.known import known
from prood.data.stored import StoredSet


@known("openimages")
def openimages(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    # A small size of its own, as the set is meant to be scaled down: at 224×224 the cache would take a terabyte.
    shape = shape or (3, 32, 32)
    channels, height, width = shape
    grey = "-grey" if channels == 1 else ""
    file = folder / "cache" / f"openimages-{split}-{height}x{width}{grey}.bin"
    name, root = f"openimages:{split}", folder / split
    kept = None if root.exists() else open_cache(file, name, shape)
    return kept or cached(Tree(root, find_pictures(root), shape, filters=MIXED), file, name)
