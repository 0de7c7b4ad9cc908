"""A picture inside another file: `lake/a.tar::000.png`, or row 3 of `lake/b.parquet::image`."""

import tarfile
import zlib
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Self

from prood.data.formats.pictures import LARGEST
from prood.errors import Damaged, NotFound, first_line

INSIDE = "::"
"""Between the file and the member or the column."""
_NOTE = 2**20


class Entry(tarfile.TarInfo):
    """A member as tarfile reads it, which takes a file that is cut at or inside a header for a whole one, and
    unpacks the notes before a member (long names, PAX) into memory, however many gigabytes they say they have."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if len(buf) != tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it lacks its end mark")
        found = super().frombuf(buf, encoding, errors)
        if found.type not in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE) and found.size > _NOTE:
            raise tarfile.ReadError(f"a note in it says that it has {found.size:,} bytes")
        return found


def picture_of(cell: Any) -> Any:
    """Bytes or a path, also out of the structs in which Hugging Face's data sets hold pictures."""
    if isinstance(cell, Mapping):
        return cell.get("path") if cell.get("bytes") is None else cell["bytes"]
    return cell


def member(name: str, row: int | None, moved: str | None = None) -> bytes | None:
    """The bytes of a picture in an archive (`row` is None) or in a table; None where `name` means neither.

    `moved` is where the file is now, or the folder that it is in.
    """
    file, inside, part = name.partition(INSIDE)
    if moved is not None:
        file = str(Path(moved, Path(file).name)) if Path(moved).is_dir() else moved
    if not inside or not Path(file).is_file():
        return None
    return _in_archive(file, part) if row is None else _in_table(file, part, row)


def _in_archive(file: str, name: str) -> bytes:
    try:
        with tarfile.open(file, "r|*", tarinfo=Entry) as archive:
            for one in archive:
                if one.name == name and one.isfile() and one.size <= LARGEST:
                    found = archive.extractfile(one)
                    return b"" if found is None else found.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise Damaged(f"cannot read the archive {file}: {first_line(error)}") from None
    raise NotFound(f"{file} holds no {name}")


def _in_table(file: str, column: str, row: int) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            for group in range(table.metadata.num_row_groups):
                length = table.metadata.row_group(group).num_rows
                if row < length:  # one by one: a dictionary holds equal pictures once, and they may be many
                    rows = table.iter_batches(batch_size=1, row_groups=[group], columns=[column], use_threads=False)
                    cell = picture_of(next(islice(rows, row, None)).column(0)[0].as_py())
                    if isinstance(cell, bytes):
                        return cell
                    break
                row -= length
    except (pa.ArrowException, OSError, IndexError, StopIteration) as error:
        raise Damaged(f"cannot read {file}: {first_line(error)}") from None
    raise NotFound(f"{file} holds no picture in that row of the column {column!r}")
