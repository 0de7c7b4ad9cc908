"""Rows of Parquet files: pictures as bytes, or their paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prood.data.formats.members import INSIDE, picture_of
from prood.data.formats.pictures import LARGEST
from prood.errors import Damaged, Mismatch, Unsupported, first_line
from prood.reading import RATIO, UNPACKED
from prood.scoring.pictures import Fault, column_of

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def opened(path: str) -> pq.ParquetFile:
    """The file; only its footer is read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise Damaged(f"cannot read {path} as Parquet ({_reason(error)}): remove it, or copy it again") from None


def column_in(path: str, asked: str | None) -> tuple[str, int]:
    """The column that holds images, and how many rows there are."""
    import pyarrow as pa

    with opened(path) as file:
        schema = file.schema_arrow
        try:
            name = column_of(schema.names, asked)
        except Mismatch as error:
            raise Mismatch(f"{path}: {error} with --column") from None
        kind = schema.field(name).type
        good = pa.types.is_struct(kind) and {field.name for field in kind} & {"bytes", "path"}
        if not good and not any(check(kind) for check in _checks(pa)):
            raise Unsupported(f"{path} has {kind} in column {name!r}: it must hold pictures as bytes, or their paths")
        return name, file.metadata.num_rows


def rows(
    path: str, column: str, start: int, count: int, size: int, *, paths: bool = False
) -> Iterator[tuple[list[tuple[str, int | None]], list[Any]]]:
    """These rows; only the row groups that they are in are read. With `paths`, bytes are a path: it may be no text.

    Pictures are taken one by one. A dictionary holds equal ones once: all its rows at once may need more than there is.
    """
    import pyarrow as pa

    with opened(path) as file:
        groups, first, before = [], None, 0
        for group in range(file.metadata.num_row_groups):
            length = file.metadata.row_group(group).num_rows
            _check_bytes(path, file, group, column)
            if before < start + count and before + length > start:
                groups.append(group)
                first = before if first is None else first
            before += length
        place, end = first or 0, start + count
        try:
            how = {"batch_size": size if paths else 1, "row_groups": groups, "columns": [column], "use_threads": False}
            found: list[tuple[tuple[str, int | None], Any]] = []
            held = 0
            for batch in file.iter_batches(**how):
                low, high = max(start - place, 0), min(end - place, len(batch))
                for row, cell in enumerate(batch.column(0).slice(low, max(0, high - low)).to_pylist(), place + low):
                    found.append(_cell(path, (f"{path}{INSIDE}{column}", row), cell, paths))
                    held += len(found[-1][1]) if isinstance(found[-1][1], bytes) else 0
                    if len(found) == size or held > LARGEST:
                        yield [reference for reference, _ in found], [image for _, image in found]
                        found, held = [], 0
                place += len(batch)
            if found:
                yield [reference for reference, _ in found], [image for _, image in found]
        except (pa.ArrowException, OSError) as error:
            raise Damaged(f"cannot read {path} as Parquet ({_reason(error)}): copy it again") from None


def _check_bytes(path: str, file: pq.ParquetFile, group: int, column: str) -> None:
    """Refuse a row group that unpacks to far more than it is."""
    found = file.metadata.row_group(group)
    parts = [found.column(place) for place in range(found.num_columns)]
    parts = [one for one in parts if one.path_in_schema.split(".")[0] == column]
    packed, unpacked = (
        sum(getattr(one, f"total_{kind}_size") for one in parts) for kind in ("compressed", "uncompressed")
    )
    if unpacked > max(UNPACKED, RATIO * packed):
        raise Damaged(
            f"{path}: {packed:,} bytes of pictures would unpack to {unpacked:,}: write it in smaller row groups"
        )


def _cell(path: str, own: tuple[str, int], cell: Any, paths: bool) -> tuple[tuple[str, int | None], Any]:
    """What a row's image is called, and what there is of it; a path is relative to the file's folder."""
    image = picture_of(cell)
    if isinstance(image, bytes) and len(image) > LARGEST:
        return own, Fault(f"the picture has {len(image):,} bytes: at most {LARGEST:,} are read")
    if image is None or (isinstance(image, bytes) and not paths):
        return own, image
    full = os.path.join(os.path.dirname(path), os.fsdecode(image))
    return (full, None), Path(full)


def _checks(pa: Any) -> tuple[Any, ...]:
    kinds = pa.types
    return kinds.is_binary, kinds.is_large_binary, kinds.is_string, kinds.is_large_string


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or first_line(error)
