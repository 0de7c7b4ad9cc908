"""From the names of sources to pieces, the same ones for all who score: the plan is made once and kept."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from prood.data.formats.folder import ENDINGS
from prood.data.images import Shape
from prood.errors import NotFound, UnknownName, Unsupported
from prood.reading import check_regular
from prood.scoring.sources import arrays, sets, tables
from prood.scoring.sources.listing import Listing, lines, walk
from prood.scoring.sources.pieces import Piece
from prood.scoring.sources.tars import ARCHIVES

ROWS = 10_000
"""Images of a shard: at a thousand a second, ten seconds of work are lost with a machine."""
MOST = 1_000_000
"""Shards of one file: what it says of its rows is not yet read."""
FEWEST = 64
SHARDS = 16
"""Small sets are cut into this number of shards, for several processes to share."""


def planned(
    sources: Sequence[str],
    listing: Listing,
    *,
    column: str | None,
    rows: int | None,
    parts: int = 1,
    shape: Shape | None = None,
    limit: int | None = None,
) -> list[Piece]:
    """The pieces of all sources; paths of single pictures go into the listing, whose pieces come first."""
    whole = []
    for source in sources:
        listing.most = None if limit is None else listing.count + limit
        whole += [_first(piece, limit) for piece in _pieces(source, listing, column, shape)]
    counted = listing.count + sum(piece.count or 0 for piece in whole)
    if not counted and not any(piece.kind == "tar" for piece in whole):
        raise NotFound(f"{', '.join(sources)} hold no pictures: files that end in {' '.join(ENDINGS)}")
    size = rows or min(ROWS, max(FEWEST, -(-counted // max(SHARDS, 4 * parts))))
    listed = Piece("listing", "", 0, listing.count)
    return [part for piece in [listed, *whole] for part in _cut(piece, size)]


def settled(source: str) -> str:
    """The same source from any folder: a path, or the name of an image set."""
    if os.path.exists(source):
        return os.path.abspath(source)
    try:
        return sets.absolute(source)
    except UnknownName:
        kinds = "folders, lists, CSV, Parquet, tar or npz files, or image sets by name"
        raise NotFound(f"there is no file, folder or image set {source}: give {kinds}") from None


def _pieces(source: str, listing: Listing, column: str | None, shape: Shape | None) -> Iterator[Piece]:
    path = settled(source)
    kind = path.lower()
    if os.path.isdir(path):
        for file in walk(path):
            yield from _file(file, listing, column)
    elif not os.path.exists(path):
        yield Piece("set", path, 0, len(sets.opened(path, shape)))
    elif kind.endswith((".txt", ".lst", ".csv")):
        check_regular(path)
        for line in lines(path, column):
            listing.add(line)
    else:
        yield from _file(path, listing, column)


def _file(path: str, listing: Listing, column: str | None) -> Iterator[Piece]:
    kind = path.lower()
    if kind.endswith(ENDINGS):
        listing.add(path)
        return
    check_regular(path)
    if kind.endswith(ARCHIVES):
        yield Piece("tar", path)
    elif kind.endswith(".parquet"):
        name, count = tables.column_in(path, column)
        yield Piece("parquet", path, 0, count, name)
    elif kind.endswith(".npz"):
        yield Piece("npz", path, 0, arrays.length(path))
    else:
        endings = ".txt .csv .parquet .tar .tar.gz .npz, or a picture"
        raise Unsupported(f"{path} is not a source of images: its name must end in {endings}")


def _first(piece: Piece, limit: int | None) -> Piece:
    if limit is None:
        return piece
    if piece.count is None:
        raise Unsupported(f"{piece.path} is an archive, whose first images alone cannot be scored: leave out --limit")
    return replace(piece, count=min(piece.count, limit))


def _cut(piece: Piece, size: int) -> Iterator[Piece]:
    if piece.count is None:
        yield piece
        return
    if piece.count > MOST * size:
        raise Unsupported(
            f"{piece.path} has {piece.count:,} rows, more than {MOST:,} shards of {size:,}: give more --rows"
        )
    for start in range(0, piece.count, size):
        yield Piece(piece.kind, piece.path, start, min(size, piece.count - start), piece.column)
