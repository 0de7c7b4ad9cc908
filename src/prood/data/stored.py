"""A set of images that stays on disk: too many, or too big, to hold in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from prood.data.images import ImageSet, Rows, check_labels, chosen, division, fingerprint, held_name, index_of
from prood.errors import BadValue, Mismatch


class Reader(Protocol):
    """Where the images of a stored set come from. Worker processes get a pickled copy of it."""

    def __len__(self) -> int: ...

    def read(self, row: int) -> Tensor:
        """One image, uint8 (C, H, W); a ProodError that names the file if it is damaged."""

    def fingerprint(self) -> str:
        """16 hex digits that change when the set does, found without reading every image."""


@dataclass(frozen=True, eq=False)
class StoredSet:
    """Images of one size behind a `Reader`; the counterpart of `ImageSet`, which `load` turns it into.

    `rows` are the reader's rows that belong to the set, all of them if None: a set may have eighty million.
    """

    name: str
    reader: Reader
    shape: tuple[int, int, int]
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
        channels, height, width = self.shape
        return len(self) * channels * height * width

    def select(self, rows: Rows) -> "StoredSet":
        """The set of these rows, in this order; a row may come twice."""
        index = index_of(self.name, rows, len(self))
        labels = None if self.labels is None else self.labels[index]
        return replace(self, rows=index if self.rows is None else self.rows[index], labels=labels)

    def subset(self, count: int, seed: int) -> "StoredSet":
        """As `ImageSet.subset`."""
        rows = chosen(self.name, len(self), count, seed)
        return self if rows is None else self.select(rows)

    def divided(self, count: int, seed: int) -> tuple["StoredSet", "StoredSet"]:
        """As `ImageSet.divided`."""
        rest, held = division(self.name, len(self), count, seed)
        return self.select(rest), replace(self.select(held), name=held_name(self.name))

    def take(self, rows: Rows) -> Tensor:
        """The images of these rows, read now: uint8 (N, C, H, W)."""
        index = index_of(self.name, rows, len(self))
        return self._read((index if self.rows is None else self.rows[index]).tolist())

    def load(self) -> ImageSet:
        """All images, read into memory."""
        rows = range(len(self.reader)) if self.rows is None else self.rows.tolist()
        return ImageSet(self.name, self._read(rows), self.labels, self.classes)

    def fingerprint(self) -> str:
        """16 hex digits over what the reader says of itself, the rows and the labels."""
        return fingerprint(self.reader.fingerprint(), self.shape, self.rows, self.labels)

    def _read(self, rows: Sequence[int]) -> Tensor:
        images = torch.empty((len(rows), *self.shape), dtype=torch.uint8)
        for place, row in enumerate(rows):
            image = self.reader.read(row)
            if image.shape != self.shape:
                raise Mismatch(
                    f"the image set '{self.name}' has an image of shape {tuple(image.shape)} (row {row}): "
                    f"the others have {self.shape}"
                )
            images[place] = image
        return images
