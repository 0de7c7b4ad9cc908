"""A piece is what one shard is made of: rows of a table, an array or an image set, or the pictures of a tar archive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from prood.data.formats.members import INSIDE
from prood.data.images import Shape
from prood.scoring.pictures import Column
from prood.scoring.sources import arrays, sets, tables, tars

Kind = Literal["listing", "parquet", "npz", "tar", "set"]
Reference = tuple[str, int | None]
"""What a certificate calls an image: a file, or a set or table and the row in it."""


class Chunk(NamedTuple):
    """Some images of a piece, undecoded, and what they are called."""

    names: list[str]
    references: list[Reference]
    images: Column


@dataclass(frozen=True)
class Piece:
    """`count` rows of a file from row `start` on; a tar archive is one piece, and nobody knows its count before."""

    kind: Kind
    path: str
    start: int = 0
    count: int | None = None
    column: str = "path"

    def to_json(self) -> list[Any]:
        return [self.kind, self.path, self.start, self.count, self.column]


def chunks(piece: Piece, size: int, shape: Shape | None = None) -> Iterator[Chunk]:
    """All images of a piece, at most `size` at once, always in the same order; a set is fitted to `shape`."""
    if piece.kind == "tar":
        found: Iterator[tuple[list[Reference], Any]] = tars.pictures(piece.path, size)
    elif piece.kind == "set":
        found = sets.rows(piece.path, range(piece.start, piece.start + (piece.count or 0)), size, shape)
    elif piece.kind == "npz":
        found = arrays.rows(piece.path, piece.start, piece.count or 0, size)
    else:
        where = piece.start, piece.count or 0, size
        found = tables.rows(piece.path, piece.column, *where, paths=piece.kind == "listing")
    for references, images in found:
        yield Chunk([text(*reference) for reference in references], references, images)


def text(name: str, row: int | None = None) -> str:
    """A file's name may be bytes other than text, which Parquet does not take."""
    if row is not None:  # the column of a table, and the kind of a file, go without saying
        name = f"{name.removeprefix('npz:').partition(INSIDE)[0]}[{row}]"
    return os.fsencode(name).decode("utf-8", "backslashreplace")
