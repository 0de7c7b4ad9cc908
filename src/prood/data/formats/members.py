"""A picture inside another file: `lake/a.tar::000.png`, or row 3 of `lake/b.parquet::image`."""

import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prood.data.formats.pictures import LARGEST
from prood.errors import Damaged, NotFound, first_line

INSIDE = "::"
"""Between the file and the member or the column."""


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
        with tarfile.open(file, "r|*") as archive:
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
                if row < length:
                    cell = picture_of(table.read_row_group(group, columns=[column])[0][row].as_py())
                    if isinstance(cell, bytes):
                        return cell
                    break
                row -= length
    except (pa.ArrowException, OSError, IndexError) as error:
        raise Damaged(f"cannot read {file}: {first_line(error)}") from None
    raise NotFound(f"{file} holds no picture in that row of the column {column!r}")
