"""LSUN: photographs of classrooms in an lmdb database."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from prood.data.catalog import AGAIN
from prood.data.formats.folder import Names
from prood.data.formats.pictures import decode, fit
from prood.data.images import Shape, fingerprint
from prood.data.public.known import known
from prood.data.stored import StoredSet
from prood.errors import Damaged, NotFound
from prood.extras import require_packages

_FILE = "data.mdb"


@known("lsun-classroom")
def lsun_classroom(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    reader = LmdbReader(folder / "classroom_val_lmdb", shape or (3, 224, 224))
    return StoredSet(f"lsun-classroom:{split}", reader, reader.shape)


@dataclass(frozen=True, eq=False)
class LmdbReader:
    """The pictures of an lmdb folder in the order of their keys, fitted; opened by each process when it first reads."""

    folder: Path
    shape: Shape

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, row: int) -> Tensor:
        name = self._keys[row]
        with _reading(self.folder) as entries:
            value = entries.get(os.fsencode(name))
        if value is None:
            raise Damaged(f"{self.folder} has lost its entry {name}: {AGAIN}")
        return fit(decode(value, f"{name} in {self.folder}", upright=False), self.shape)

    def fingerprint(self) -> str:
        """Over the keys and the size of the file."""
        return fingerprint(self._keys.digest(), (self.folder / _FILE).stat().st_size)

    @cached_property
    def _keys(self) -> Names:
        with _reading(self.folder) as entries:
            return Names(os.fsdecode(key) for key in entries.cursor().iternext(keys=True, values=False))


@contextmanager
def _reading(folder: Path) -> Iterator[Any]:
    require_packages("data", "lmdb", what=f"reading {folder}")
    import lmdb

    try:
        with _environment(os.path.realpath(folder)).begin(buffers=False) as transaction:
            yield transaction
    except lmdb.Error as error:
        raise Damaged(f"cannot read {folder} as an lmdb folder ({type(error).__name__}): {AGAIN}") from error


# One for all readers of a folder, and it stays open: lmdb refuses to open a folder twice in a process. Without lock
# and read-only it is nothing but mapped memory, which forked processes may share.
@cache
def _environment(folder: str) -> Any:
    import lmdb

    path = Path(folder, _FILE)
    if not path.is_file():
        raise NotFound(f"there is no file {path}: {AGAIN}")
    environment = lmdb.open(folder, readonly=True, lock=False, readahead=False)
    # To touch a page beyond the end of a file would kill the process.
    if path.stat().st_size < (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]:
        environment.close()
        raise Damaged(f"cannot read {path}, which is cut off: {AGAIN}")
    return environment
