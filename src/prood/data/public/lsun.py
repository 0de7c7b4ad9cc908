"""LSUN: 300 classrooms, an out-distribution to test with."""

from pathlib import Path

from prood.data.formats.lsun import LmdbReader
from prood.data.public.known import known
from prood.data.sources import Shape
from prood.data.stored import StoredSet

_SHAPE = (3, 224, 224)


@known("lsun-classroom")
def lsun_classroom(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    reader = LmdbReader(folder / "classroom_val_lmdb", shape or _SHAPE)
    return StoredSet(f"lsun-classroom:{split}", reader, reader.shape)
