"""The user's own pictures: decoded when they are read, or once into a cache; and what becomes of damaged ones."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import ClassVar, Protocol

import torch
from PIL import Image
from torch import Tensor

from prood.data.catalog import data_folder
from prood.data.formats.cache import CacheReader, cached, open_cache
from prood.data.formats.pictures import ClosedPicture, DamagedPicture, Unreadable, fit, own_shape
from prood.data.images import Shape, fingerprint
from prood.data.parallel import by_all_cores
from prood.data.stored import Damage, Reader, StoredSet
from prood.errors import Damaged, Mismatch, NoAccess

LARGEST = 2**35
"""A set of more bytes, 32 GiB, is decoded anew each time it is read: its cache would fill a disk."""
NAMED = 3  # of the pictures that cannot be read


class OtherShape(Mismatch):
    """A good picture of another shape than the first one of its set."""


class OwnPictures(Protocol):
    """What a reader of a user's files has to do."""

    def __len__(self) -> int: ...

    def title(self, row: int) -> str:
        """What messages call the picture."""

    def picture(self, row: int) -> Image.Image:
        """Decoded, of whatever size."""

    def fingerprint(self) -> str:
        """16 hex digits that change when the pictures do, the same on another machine."""

    def origin(self) -> str:
        """Changes when a file was changed in any way."""


@dataclass(frozen=True, eq=False)
class Own:
    """The user's own pictures as images of one shape: all fitted to `target`, or, if that is None, as they are.

    One filter fits all of them, inside and outside alike, as two would tell the sets apart: Pillow's bilinear one,
    which most classifiers' own preprocessing uses. `place` is where the pictures lie; the cache is named by it.
    """

    pictures: OwnPictures
    name: str
    place: str
    target: Shape | None

    left_out: ClassVar = (DamagedPicture, ClosedPicture)

    def __len__(self) -> int:
        return len(self.pictures)

    @cached_property
    def shape(self) -> Shape:
        """The target, or the shape of the first picture that can be read."""
        fault: Unreadable | None = None
        for row in range(0 if self.target else len(self)):
            try:
                return own_shape(self._picture(row))
            except Unreadable as error:
                fault = fault or error
        if fault is not None:
            raise fault
        assert self.target is not None
        return self.target

    def title(self, row: int) -> str:
        return self.pictures.title(row)

    def read(self, row: int) -> Tensor:
        image = self._picture(row)
        found = own_shape(image)
        # A grey picture in a colour set loses nothing; a colour picture in a grey set would.
        if self.target is None and (found[1:] != self.shape[1:] or found[0] > self.shape[0]):
            raise OtherShape(
                f"{self.title(row)} in {self.name} has the shape {found}, but others have {self.shape}: to fit all of "
                "them, write data.image = [3, 64, 64] in the recipe, or shape=(3, 64, 64) in Python"
            )
        return fit(image, self.shape)

    def _picture(self, row: int) -> Image.Image:
        image = self.pictures.picture(row)
        if image.size == (1, 1):
            raise DamagedPicture(f"{self.title(row)} in {self.name}", "it is a single pixel, which shows nothing")
        return image

    def fingerprint(self) -> str:
        return fingerprint(self.pictures.fingerprint(), self.shape, self.target is None)

    def origin(self) -> str:
        return fingerprint(self.pictures.origin(), self.shape, self.target is None)

    def read_many(self, rows: Sequence[int]) -> Tensor:
        """These rows, by all cores; the error names the damaged ones among them together."""
        images = torch.empty((len(rows), *self.shape), dtype=torch.uint8)
        pixels = images.numpy()
        faults: list[tuple[str, str]] = []

        def read(row: int) -> Tensor | Unreadable:
            try:
                return self.read(row)
            except Unreadable as error:
                return error

        with by_all_cores(read, self.name, len(rows)) as ordered:
            for place, (row, image) in enumerate(zip(rows, ordered(rows), strict=True)):
                if isinstance(image, Tensor):
                    pixels[place] = image.numpy()
                else:
                    faults.append((self.title(row), image.reason))
        if faults:
            raise self._refused(faults, len(rows))
        return images

    def kept(self, *, make: bool) -> Reader:
        """The same images out of their cache; itself if there is no cache and none is wanted or fits."""
        if len(self) * prod(self.shape) > LARGEST:
            return self
        if not make and open_cache(self._file, self.name, self.shape, self.origin()) is None:
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
            raise NoAccess(f"{self.name} takes {size}, too much memory to check every image: give a smaller shape")
        return self._cached(tell=True)

    @property
    def _file(self) -> Path:
        """The cache, in the data folder."""
        text = f"{self.place}\n{self.name.partition(':')[0]}\n{self.shape}\n{self.target is None}"
        key = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
        label = re.sub(r"[^\w.-]", "-", Path(self.place).name)[:40] or "pictures"
        return data_folder() / "fitted" / f"{label}-{self.shape[1]}x{self.shape[2]}-{key}.bin"

    def _cached(self, tell: bool) -> CacheReader:
        reader = cached(self, self._file, self.name, tell=tell).reader
        assert isinstance(reader, CacheReader)
        return reader

    def _refused(self, faults: list[tuple[str, str]], among: int) -> Damaged:
        first = ", ".join(f"{name} ({reason})" for name, reason in faults[:NAMED])
        more = f" and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
        hint = (
            'mend or remove them, or leave them out: --damaged skip for prood guard, data.damaged = "skip" in a recipe'
        )
        return Damaged(f"cannot read {len(faults)} of {among} pictures of {self.name}: {first}{more}; {hint}")


def own_set(
    reader: Own, damaged: Damage, labels: Tensor | None = None, classes: tuple[str, ...] | None = None
) -> StoredSet:
    """The set of these pictures. Skipping damaged ones means to check all now, not when each is read."""
    images = StoredSet(reader.name, reader, reader.shape, labels, classes)
    if damaged == "refuse":
        return images
    whole = reader.whole()
    if labels is not None:
        good = torch.ones(len(reader), dtype=torch.bool)
        good[whole.note.rows] = False
        labels = labels[good]
    return replace(images, reader=whole, labels=labels)
