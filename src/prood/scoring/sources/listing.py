"""Paths of pictures, of folders and of lists, written down once: all who score read their shards from it."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from prood.data.formats.folder import ENDINGS
from prood.errors import Damaged, NoAccess
from prood.scoring.pictures import column_of
from prood.scoring.sources.tars import ARCHIVES

GROUP = 5000
"""Paths of a row group, which is what one reads to have one of them."""
_LONGEST = 2**20


class Listing:
    """Writes paths into a Parquet file, in constant memory."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._schema = pa.schema([("path", pa.binary())])
        self._file = pq.ParquetWriter(path, self._schema, compression="zstd", write_statistics=False)
        self._waiting: list[bytes] = []
        self.count = 0
        self.most: int | None = None  # maximum paths to list

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._flush()
        self._file.close()

    def add(self, path: str) -> None:
        if self.count == self.most:
            return
        self._waiting.append(os.fsencode(path))
        self.count += 1
        if len(self._waiting) == GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            self._file.write_table(pa.table([pa.array(self._waiting, pa.binary())], schema=self._schema))
            self._waiting = []


def walk(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Pictures, Parquet files and tar archives below a folder, sorted; what is hidden does not count."""
    names, folders, endings = [], set(), (*ENDINGS, *ARCHIVES, ".parquet")
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.add(entry.name)
                elif not entry.name.lower().endswith(endings):
                    continue
                names.append(entry.name)
    except OSError as error:
        raise NoAccess(f"cannot read the folder {folder} ({error.strerror}): check its permissions") from None
    real = os.path.realpath(folder)
    if real in above:
        raise Damaged(f"the folder {folder} is a link to a folder that contains it: remove the link")
    names.sort()  # names alone: a folder may hold ten million
    for name in names:
        path = os.path.join(folder, name)
        if name in folders:
            yield from walk(path, (*above, real))
        else:
            yield path


def lines(file: str, column: str | None) -> Iterator[str]:
    """The paths in a list (one a line) or in a column of a CSV file, absolute or relative to the file's folder."""
    base = os.path.dirname(file)
    try:
        with open(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as opened:
            content = _lines(opened, file)
            if file.lower().endswith(".csv"):
                table = csv.DictReader(content)
                name = column_of(list(table.fieldnames or ()), column)
                words = (row[name] or "" for row in table)
            else:
                words = (line.rstrip("\r\n") for line in content)
            for word in words:
                if word:
                    yield os.path.join(base, word)
    except OSError as error:
        raise NoAccess(f"cannot read {file} ({error.strerror}): check its permissions") from None
    except csv.Error as error:
        raise Damaged(f"cannot read {file} as CSV: {error}") from None


def _lines(content: TextIO, file: str) -> Iterator[str]:
    while line := content.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise Damaged(f"{file} has a line of more than {_LONGEST - 1:,} letters: give one path a line")
        yield line
