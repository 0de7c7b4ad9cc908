"""The user's own pictures: decoded when they are read, or once into a cache; and what becomes of damaged ones."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from prood.data.catalog import data_folder
from prood.data.formats.cache import CacheReader, Pictures, cached, open_cache
from prood.data.formats.pictures import Unreadable
from prood.data.images import Shape
from prood.data.parallel import by_all_cores
from prood.data.stored import Damage, Reader, StoredSet
from prood.errors import Damaged, NoAccess

LARGEST = 2**35
"""A set of more bytes, 32 GiB, is decoded anew each time it is read: its cache would fill a disk."""
NAMED = 3  # of the pictures that cannot be read


class OwnPictures(Pictures, Protocol):
    """What a reader of a user's files has besides what a cache needs."""

    def fingerprint(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Own:
    """A reader of the user's own pictures.

    `place` is where they lie, and `treatment` what is done to them: together they are a cache's name, so that an
    outdated one is replaced and not kept.
    """

    pictures: OwnPictures
    name: str
    place: str
    treatment: str = ""

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def shape(self) -> Shape:
        return self.pictures.shape

    def read(self, row: int) -> Tensor:
        return self.pictures.read(row)

    def fingerprint(self) -> str:
        return self.pictures.fingerprint()

    def read_many(self, rows: Sequence[int]) -> Tensor:
        """These rows, by all cores; the error names the damaged ones among them together."""
        images = torch.empty((len(rows), *self.shape), dtype=torch.uint8)
        faults: list[tuple[str, str]] = []

        def read(row: int) -> Tensor | Unreadable:
            try:
                return self.pictures.read(row)
            except Unreadable as error:
                return error

        with by_all_cores(read, self.name, len(rows)) as ordered:
            for place, (row, image) in enumerate(zip(rows, ordered(rows), strict=True)):
                if isinstance(image, Tensor):
                    images[place] = image
                else:
                    faults.append((self.pictures.title(row), image.reason))
        if faults:
            raise self._refused(faults, len(rows))
        return images

    def kept(self, *, make: bool) -> Reader:
        """The same images out of their cache; itself where there is none, and none is to be made or has room."""
        if len(self) * prod(self.shape) > LARGEST:
            return self
        if not make and open_cache(self._file, self.name, self.shape, self.pictures.origin()) is None:
            return self
        try:
            reader = self._cached(tell=False)
        except NoAccess:
            return self
        if reader.note.skipped:
            raise self._refused(list(zip(reader.note.skipped, reader.note.reasons, strict=True)), len(self))
        return reader

    def whole(self) -> CacheReader:
        """The images without the damaged ones, out of a cache that says which these are."""
        if len(self) * prod(self.shape) > LARGEST:
            size = f"{len(self) * prod(self.shape) / 1e9:,.0f} GB as {self.shape}"
            raise NoAccess(f"{self.name} takes {size}, too much to look at all of it: give a smaller shape")
        return self._cached(tell=True)

    @property
    def _file(self) -> Path:
        """The cache, in the data folder."""
        text = f"{self.place}\n{self.name.partition(':')[0]}\n{self.shape}\n{self.treatment}"
        key = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
        label = re.sub(r"[^\w.-]", "-", Path(self.place).name)[:40] or "pictures"
        return data_folder() / "fitted" / f"{label}-{self.shape[1]}x{self.shape[2]}-{key}.bin"

    def _cached(self, tell: bool) -> CacheReader:
        reader = cached(self.pictures, self._file, self.name, tell=tell).reader
        assert isinstance(reader, CacheReader)
        return reader

    def _refused(self, faults: list[tuple[str, str]], among: int) -> Damaged:
        first = ", ".join(f"{name} ({reason})" for name, reason in faults[:NAMED])
        more = f" and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
        hint = 'mend or remove them, or write data.damaged = "skip" in the recipe, damaged="skip" in Python'
        return Damaged(f"cannot read {len(faults)} of {among} pictures of {self.name}: {first}{more}; {hint}")


def own_set(
    reader: Own, damaged: Damage, labels: Tensor | None = None, classes: tuple[str, ...] | None = None
) -> StoredSet:
    """The set of these pictures. To skip the damaged ones, all are looked at now; else each when it is read."""
    images = StoredSet(reader.name, reader, reader.shape, labels, classes)
    if damaged == "refuse":
        return images
    whole = reader.whole()
    if labels is not None:
        good = torch.ones(len(reader), dtype=torch.bool)
        good[whole.note.rows] = False
        labels = labels[good]
    return replace(images, reader=whole, labels=labels)
