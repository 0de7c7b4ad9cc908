"""A piece is what one shard is made of: rows of a table, of an array, or the pictures of a tar archive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from prood.scoring.pictures import Column
from prood.scoring.sources import arrays, tables, tars

Kind = Literal["listing", "parquet", "npz", "tar"]


class Chunk(NamedTuple):
    """Some images of a piece, undecoded, and their names."""

    names: list[str]
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


def chunks(piece: Piece, size: int) -> Iterator[Chunk]:
    """All images of a piece, at most `size` at once, always in the same order."""
    if piece.kind == "tar":
        found: Iterator[tuple[list[Any], Any]] = tars.pictures(piece.path, size)
    elif piece.kind == "npz":
        found = arrays.rows(piece.path, piece.start, piece.count or 0, size)
    else:
        where = piece.start, piece.count or 0, size
        found = tables.rows(piece.path, piece.column, *where, paths=piece.kind == "listing")
    for names, images in found:
        yield Chunk([text(name) for name in names], images)


def text(name: str) -> str:
    """A file's name may be bytes that are no text, which Parquet does not take."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
