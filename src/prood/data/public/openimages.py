"""OpenImages v4 (Kuznetsova et al., 2020), an out-distribution to train with: photographs, scaled down once.

The first use at a size takes hours and leaves a file in `cache/`. Once that is there the pictures may be removed.
"""

from pathlib import Path

from prood.data.formats.cache import cached, open_cache
from prood.data.formats.folder import Tree, find_pictures
from prood.data.formats.pictures import MIXED
from prood.data.public.known import known
from prood.data.sources import Shape
from prood.data.stored import StoredSet

# Of a set that is there to be scaled down, a small own size: at 224×224 the cache would take a terabyte.
_SHAPE = (3, 32, 32)


@known("openimages")
def openimages(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    shape = shape or _SHAPE
    channels, height, width = shape
    grey = "-grey" if channels == 1 else ""
    file = folder / "cache" / f"openimages-{split}-{height}x{width}{grey}.bin"
    name = f"openimages:{split}"
    root = folder / split
    if not root.exists():
        kept = open_cache(file, name, shape)
        if kept is not None:
            return kept
    return cached(Tree(root, find_pictures(root), shape, filters=MIXED), file, name)
