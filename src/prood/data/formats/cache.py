"""Pictures that are decoded and fitted once: raw bytes in a file, which is read from then on.

Beside `NAME.bin` lies `NAME.json`, which says what it was made from and names the pictures that were left out because
they are damaged. While it is made, both are called `….part`; a build that was interrupted goes on where it stopped.
One process builds and others wait: under a lock that the system releases with the process.
"""

import hashlib
import json
import os
import shutil
import weakref
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from prood.atomic import locked, write_text
from prood.data.catalog import FOLDER_VARIABLE
from prood.data.formats import reading
from prood.data.formats.pictures import Unreadable
from prood.data.images import Shape, fingerprint
from prood.data.parallel import by_all_cores
from prood.data.stored import StoredSet
from prood.errors import Damaged, Mismatch, NoAccess
from prood.reading import json_of, text

_CHUNK = 1024  # pictures between two notes of how far a build has come


class NoneReadable(Damaged):
    """Not a single picture of a set can be read."""


class Pictures(Protocol):
    """What a cache is made of."""

    @property
    def shape(self) -> Shape: ...

    @property
    def left_out(self) -> tuple[type[Unreadable], ...]:
        """The errors of `read` for which a picture is left out; any other ends the build."""

    def __len__(self) -> int: ...

    def read(self, row: int) -> Tensor: ...

    def title(self, row: int) -> str:
        """What messages call the picture."""

    def origin(self) -> str:
        """Changes when the cache has to be made anew."""


@dataclass
class _Note:
    """What the JSON file holds."""

    origin: str
    shape: Shape
    done: int = 0  # pictures looked at
    count: int = 0  # pictures in the file
    skipped: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # of those that were skipped
    reasons: list[str] = field(default_factory=list)  # for which they were
    content: str = ""  # sha256 of the last one and the next chunk's bytes; "" in files of earlier versions

    def write(self, path: Path) -> None:
        write_text(path, json.dumps(asdict(self), indent=1))


@dataclass(frozen=True, eq=False)
class CacheReader:
    """Images that lie in a file one after the other; each process opens it when it first reads.

    It is read and not mapped, where the system can: the pages of a map count as the process's memory.
    """

    file: Path
    count: int
    shape: Shape
    content: str

    def __len__(self) -> int:
        return self.count

    def read(self, row: int) -> Tensor:
        if not 0 <= row < self.count or not hasattr(os, "pread"):
            return torch.from_numpy(self._pixels[row].copy())
        size = prod(self.shape)
        content = bytearray(os.pread(self._opened.fileno(), size, row * size))  # threads share it: no place to seek
        return torch.frombuffer(content, dtype=torch.uint8).reshape(self.shape)

    def fingerprint(self) -> str:
        return fingerprint(self.content, self.count)

    @cached_property
    def note(self) -> _Note:
        """Which pictures were left out, and why."""
        return _read_note(self.file.with_suffix(".json")) or _Note("", self.shape)

    @cached_property
    def _opened(self) -> BinaryIO:
        with reading(self.file, "open the set again, which rebuilds it"):
            opened = self.file.open("rb")
        weakref.finalize(self, opened.close)
        return opened

    @cached_property
    def _pixels(self) -> NDArray[np.uint8]:
        with reading(self.file, "open the set again, which rebuilds it"):
            return np.memmap(self.file, np.uint8, "r", shape=(self.count, *self.shape))

    def __getstate__(self) -> dict[str, Any]:
        # A pickled map would be a copy of all images, and a file cannot be sent.
        return {name: value for name, value in self.__dict__.items() if name not in ("_opened", "_pixels", "note")}


def cached(pictures: Pictures, file: Path, name: str, *, tell: bool = True) -> StoredSet:
    """The set `name` of these pictures, from `file`, which is built first if it is not there or outdated.

    Unless told otherwise, a build prints how many pictures it left out.
    """
    origin = pictures.origin()
    if found := open_cache(file, name, pictures.shape, origin):
        return found
    try:
        with locked(file):
            # Perhaps another process has just built it.
            if found := open_cache(file, name, pictures.shape, origin):
                return found
            note = _Build(pictures, file, name, origin).run()
    except OSError as error:
        hint = f"make room, or set {FOLDER_VARIABLE} to a folder elsewhere"
        raise NoAccess(f"cannot write {file}: {error.strerror or error}; {hint}") from error
    if note.skipped and tell:
        left_out = f"{len(note.skipped)} of {len(pictures)} pictures are damaged and were left out"
        text = f"{left_out}: {file.with_suffix('.json')} names them"
        Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)
    return _opened(file, name, note)


def open_cache(file: Path, name: str, shape: Shape, origin: str | None = None) -> StoredSet | None:
    """The finished cache; None if there is none, or one of another origin."""
    note = _read_note(file.with_suffix(".json"))
    if note is None or note.shape != shape or origin not in (None, note.origin):
        return None
    if not file.is_file() or file.stat().st_size != note.count * prod(shape):
        return None
    return _opened(file, name, note)


def _opened(file: Path, name: str, note: _Note) -> StoredSet:
    return StoredSet(name, CacheReader(file, note.count, note.shape, note.content or note.origin), note.shape)


@dataclass(frozen=True)
class _Build:
    pictures: Pictures
    file: Path
    name: str
    origin: str

    def run(self) -> _Note:
        part, part_note, whole_note = (self.file.with_suffix(end) for end in (".bin.part", ".bin.part.json", ".json"))
        try:
            note = self._fill(part, part_note)
            if not note.count:
                found = f"none of the {len(self.pictures)} pictures of {self.name} can be read"
                raise NoneReadable(f"{found}; the first is {note.skipped[0]} ({note.reasons[0]})")
        except (Mismatch, NoneReadable):  # what is there so far would be of no use to the next attempt
            part.unlink(missing_ok=True)
            part_note.unlink(missing_ok=True)
            raise
        if self.pictures.origin() != self.origin:
            raise Damaged(f"pictures of {self.name} have changed while they were read: start again")
        # The old description goes first, so that it never stands beside the new images.
        whole_note.unlink(missing_ok=True)
        os.replace(part, self.file)
        note.write(whole_note)
        part_note.unlink()
        return note

    def _fill(self, part: Path, part_note: Path) -> _Note:
        """Read what is still to be read into the file `part`."""
        pictures, each = self.pictures, prod(self.pictures.shape)
        note = _read_note(part_note)
        if note is None or (note.origin, note.shape) != (self.origin, pictures.shape):
            note = _Note(self.origin, pictures.shape)
        if not part.is_file() or part.stat().st_size < note.count * each:
            note = _Note(self.origin, pictures.shape)
        needed, free = (len(pictures) - note.done) * each, shutil.disk_usage(part.parent).free
        if needed > free:
            size = f"{needed / 1e9:.1f} GB more and the disk has {free / 1e9:.1f} GB"
            raise NoAccess(f"{self.file} takes {size}: make room, or set {FOLDER_VARIABLE} to a folder elsewhere")
        with (
            part.open("r+b" if note.count else "wb") as out,
            by_all_cores(self._read, self.name, len(pictures), note.done) as read,
        ):
            out.truncate(note.count * each)
            out.seek(0, os.SEEK_END)
            while note.done < len(pictures):
                rows = range(note.done, min(note.done + _CHUNK, len(pictures)))
                digest = hashlib.sha256(note.content.encode())
                for row, image in zip(rows, read(rows), strict=True):
                    if isinstance(image, Unreadable):
                        note.skipped.append(pictures.title(row))
                        note.rows.append(row)
                        note.reasons.append(image.reason)
                        continue
                    digest.update(content := image.numpy().tobytes())
                    out.write(content)
                    note.count += 1
                out.flush()
                os.fsync(out.fileno())
                note.content = digest.hexdigest()
                note.done = rows.stop
                note.write(part_note)
        return note

    def _read(self, row: int) -> Tensor | Unreadable:
        try:
            return self.pictures.read(row)
        # Only these: where a disk is gone, all pictures would be left out without a word.
        except self.pictures.left_out as error:
            return error


def _read_note(path: Path) -> _Note | None:
    try:
        note = _Note(**json_of(text(path)))
        channels, height, width = note.shape
        note.shape = (int(channels), int(height), int(width))
        return note
    # Whatever is wrong with it, the cache is built anew.
    except (OSError, ValueError, TypeError):
        return None
