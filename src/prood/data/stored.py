"""Image sets that stay on disk: a reader that can be sent to worker processes, and the set around it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from prood.data.images import Choosable, ImageSet, Rows, Shape, check_labels, fingerprint
from prood.errors import BadValue, Mismatch

Damage = Literal["refuse", "skip"]
"""What becomes of pictures that cannot be read: the set is refused, or they are left out and listed."""


class Reader(Protocol):
    """Where the images of a stored set come from. Worker processes get a pickled copy of it."""

    def __len__(self) -> int: ...

    def read(self, row: int) -> Tensor:
        """One image, uint8 (C, H, W); a ProodError that names the file if it is damaged."""

    def fingerprint(self) -> str:
        """16 hex digits that change when the set does, found without reading every image."""


@runtime_checkable
class Decoding(Reader, Protocol):
    """A reader for which each image is work, and that can do it once and for all."""

    def read_many(self, rows: Sequence[int]) -> Tensor:
        """These rows, by all cores."""

    def kept(self, *, make: bool) -> Reader:
        """The same images out of a cache, which is made now if missing; itself if it needs no cache."""


@dataclass(frozen=True, eq=False, repr=False)
class StoredSet(Choosable):
    """Images of one size behind a `Reader`; the counterpart of `ImageSet`, which `load` turns it into.

    `rows` are the reader's rows that belong to the set, all of them if None: a set may have eighty million.
    """

    reader: Reader
    shape: Shape
    labels: Tensor | None = None
    classes: tuple[str, ...] | None = None
    rows: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self) == 0:
            raise BadValue(f"the image set '{self.name}' has no images")
        check_labels(self.name, len(self), self.labels, self.classes)

    def __len__(self) -> int:
        return len(self.reader) if self.rows is None else len(self.rows)

    @property
    def bytes(self) -> int:
        """What the images take in memory."""
        return len(self) * prod(self.shape)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The pictures that could not be read and were left out, each with the reason."""
        note = getattr(self.reader, "note", None)
        return () if note is None else tuple(f"{a}: {b}" for a, b in zip(note.skipped, note.reasons, strict=False))

    def select(self, rows: Rows) -> Self:
        """The set of these rows, in this order; a row may come twice."""
        index = self._index(rows)
        labels = None if self.labels is None else self.labels[index]
        return replace(self, rows=index if self.rows is None else self.rows[index], labels=labels)

    def take(self, rows: Rows) -> Tensor:
        """The images of these rows, read now: uint8 (N, C, H, W)."""
        index = self._index(rows)
        return self._read((index if self.rows is None else self.rows[index]).tolist())

    def load(self) -> ImageSet:
        """All images, read into memory."""
        reader = self.prepared().reader
        rows = range(len(reader)) if self.rows is None else self.rows.tolist()
        images = reader.read_many(rows) if isinstance(reader, Decoding) else replace(self, reader=reader)._read(rows)
        return ImageSet(self.name, images, self.labels, self.classes)

    def prepared(self, *, often: bool = False) -> Self:
        """The set as it is read fastest: out of a cache.

        This is made if at least half of the reader's pictures are in the set, or if they are read `often`.
        """
        if isinstance(self.reader, Decoding):
            return replace(self, reader=self.reader.kept(make=often or 2 * len(self) >= len(self.reader)))
        return self

    def fingerprint(self) -> str:
        """16 hex digits over what the reader says of itself, the rows and the labels."""
        return fingerprint(self.reader.fingerprint(), self.shape, self.rows, self.labels)

    def _read(self, rows: Sequence[int]) -> Tensor:
        images = torch.empty((len(rows), *self.shape), dtype=torch.uint8)
        pixels = images.numpy()  # a copy of one image by PyTorch's threads takes 20 ms where others have the cores
        for place, row in enumerate(rows):
            image = self.reader.read(row)
            if image.shape != self.shape:
                odd = f"an image of shape {tuple(image.shape)} (row {row}): the others have {self.shape}"
                raise Mismatch(f"the image set '{self.name}' has {odd}")
            pixels[place] = image.numpy()
        return images


Images = ImageSet | StoredSet


def joined(first: Images, *others: Images) -> Images:
    """These sets one after the other, under the name of the first and without labels; in memory if the first is."""
    if isinstance(first, ImageSet):
        return ImageSet(first.name, torch.cat([first.images, *(one.load().images for one in others)]))
    return StoredSet(first.name, _Joined((first, *others)), first.shape)


@dataclass(frozen=True, eq=False)
class _Joined:
    """The reader of sets one after the other."""

    parts: tuple[Images, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def read(self, row: int) -> Tensor:
        for part in self.parts:
            if row < len(part):
                return part.take([row])[0]
            row -= len(part)
        raise IndexError(row)

    def read_many(self, rows: Sequence[int]) -> Tensor:
        asked, begin = torch.as_tensor(rows), 0
        images = torch.empty((len(asked), *self.parts[0].shape), dtype=torch.uint8)
        for part in self.parts:
            own = (begin <= asked) & (asked < begin + len(part))
            if own.any():
                images[own] = part.select(asked[own] - begin).load().images
            begin += len(part)
        return images

    def kept(self, *, make: bool) -> Reader:
        return replace(self, parts=tuple(part.prepared(often=make) for part in self.parts))

    def fingerprint(self) -> str:
        return fingerprint(*(part.fingerprint() for part in self.parts))
