"""OpenImages v4 (Kuznetsova et al., 2020), an out-distribution to train with: photographs, scaled down once.

The first use at a size takes hours and leaves raw bytes in a file in `cache/`, which is mapped into memory from then
on. Once that is there the pictures may be removed.

Beside `NAME.bin` lies `NAME.json`, which says what it was made from and names the pictures that were left out because
they are damaged. While it is made, both are called `….part`; a build that was interrupted goes on where it stopped.
One process builds and others wait: under a lock that the system releases with the process.

The pictures are read in threads: Pillow decodes and resizes outside of Python's lock. (On two cores, pictures of
1024×768 took 8.6 ms each with one thread, 3.7 with two, and 4.3 with two processes.)
"""

import json
import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from prood.atomic import locked, write_text
from prood.data.formats import reading
from prood.data.formats.folder import Tree, find_pictures
from prood.data.formats.pictures import MIXED, DamagedPicture
from prood.data.images import Shape, fingerprint
from prood.data.public.known import known
from prood.data.stored import StoredSet
from prood.errors import Damaged, NoAccess

_CHUNK = 1024  # pictures between two notes of how far a build has come


@known("openimages")
def openimages(folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    # Of a set that is there to be scaled down, a small own size: at 224×224 the cache would take a terabyte.
    shape = shape or (3, 32, 32)
    channels, height, width = shape
    grey = "-grey" if channels == 1 else ""
    file = folder / "cache" / f"openimages-{split}-{height}x{width}{grey}.bin"
    name, root = f"openimages:{split}", folder / split
    kept = None if root.exists() else open_cache(file, name, shape)
    return kept or cached(Tree(root, find_pictures(root), shape, filters=MIXED), file, name)


@dataclass
class _Note:
    """What the JSON file holds."""

    origin: str  # fingerprint of the tree
    shape: Shape
    done: int = 0  # pictures looked at
    count: int = 0  # pictures in the file
    skipped: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        write_text(path, json.dumps(asdict(self), indent=1))


@dataclass(frozen=True, eq=False)
class CacheReader:
    """Images that lie in a file one after the other; each process maps it when it first reads."""

    file: Path
    count: int
    shape: Shape
    origin: str

    def __len__(self) -> int:
        return self.count

    def read(self, row: int) -> Tensor:
        return torch.from_numpy(self._pixels[row].copy())

    def fingerprint(self) -> str:
        return fingerprint(self.origin, self.count)

    @cached_property
    def _pixels(self) -> NDArray[np.uint8]:
        with reading(self.file, "open the set again, which rebuilds it"):
            return np.memmap(self.file, np.uint8, "r", shape=(self.count, *self.shape))

    def __getstate__(self) -> dict[str, Any]:
        # A pickled map would be a copy of all images.
        return {name: value for name, value in self.__dict__.items() if name != "_pixels"}


def cached(tree: Tree, file: Path, name: str) -> StoredSet:
    """The set `name` with the pictures of a tree, from `file`, which is built first if it is not there or outdated."""
    origin = tree.fingerprint()
    if found := open_cache(file, name, tree.shape, origin):
        return found
    try:
        with locked(file):
            # Perhaps another process has just built it.
            return open_cache(file, name, tree.shape, origin) or _build(tree, file, name, origin)
    except OSError as error:
        raise NoAccess(f"cannot write {file}: {error.strerror or error}") from error


def open_cache(file: Path, name: str, shape: Shape, origin: str | None = None) -> StoredSet | None:
    """The finished cache; None if there is none, or one of another origin."""
    note = _read_note(file.with_suffix(".json"))
    if note is None or note.shape != shape or origin not in (None, note.origin):
        return None
    if not file.is_file() or file.stat().st_size != note.count * prod(shape):
        return None
    return StoredSet(name, CacheReader(file, note.count, shape, note.origin), shape)


def _build(tree: Tree, file: Path, name: str, origin: str) -> StoredSet:
    part, part_note, whole_note = (file.with_suffix(ending) for ending in (".bin.part", ".bin.part.json", ".json"))
    note, each = _read_note(part_note), prod(tree.shape)
    if note is None or (note.origin, note.shape) != (origin, tree.shape):
        note = _Note(origin, tree.shape)
    if not part.is_file() or part.stat().st_size < note.count * each:
        note = _Note(origin, tree.shape)
    needed, free = (len(tree) - note.done) * each, shutil.disk_usage(file.parent).free
    if needed > free:
        raise NoAccess(f"{file} takes {needed / 1e9:.1f} GB more and the disk has {free / 1e9:.1f} GB: make room")
    console = Console(stderr=True)
    columns = (TextColumn(f"{file.name}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        part.open("r+b" if note.count else "wb") as out,
        ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,
        # `decode` changes the filters of warnings, and threads that do so at once leave them changed.
        warnings.catch_warnings(),
        Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress,
    ):
        task = progress.add_task("", total=len(tree), completed=note.done)
        out.truncate(note.count * each)
        out.seek(0, os.SEEK_END)
        while note.done < len(tree):
            rows = range(note.done, min(note.done + _CHUNK, len(tree)))
            for row, image in zip(rows, pool.map(lambda row: _read(tree, row), rows), strict=True):
                if image is None:
                    note.skipped.append(tree.files[row])
                else:
                    out.write(image.numpy().tobytes())
                    note.count += 1
            out.flush()
            os.fsync(out.fileno())
            note.done = rows.stop
            note.write(part_note)
            progress.update(task, completed=note.done)
    if not note.count:
        part.unlink()
        part_note.unlink()
        raise Damaged(f"none of the {len(tree)} pictures below {tree.root} can be read: get them again")
    # The old description goes first, so that it never stands beside the new images.
    whole_note.unlink(missing_ok=True)
    os.replace(part, file)
    note.write(whole_note)
    part_note.unlink()
    if note.skipped:
        left_out = f"{len(note.skipped)} of {len(tree)} pictures are damaged and were left out"
        console.print(f"{left_out}: {whole_note} names them", markup=False, highlight=False, soft_wrap=True)
    return StoredSet(name, CacheReader(file, note.count, tree.shape, origin), tree.shape)


def _read(tree: Tree, row: int) -> Tensor | None:
    try:
        return tree.read(row)
    # Only this one: where a disk is gone, all pictures would be left out without a word.
    except DamagedPicture:
        return None


def _read_note(path: Path) -> _Note | None:
    try:
        note = _Note(**json.loads(path.read_text(encoding="utf-8")))
        channels, height, width = note.shape
        note.shape = (int(channels), int(height), int(width))
        return note
    # Whatever is wrong with it, the cache is built anew.
    except (OSError, ValueError, TypeError):
        return None
