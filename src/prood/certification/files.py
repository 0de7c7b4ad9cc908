"""Certificates in files: lines of JSON, or columns of such lines in Parquet. Any number is read in constant memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from prood.certification.record import Certificate
from prood.errors import Damaged, NoAccess, NotFound, first_line
from prood.extras import require_packages
from prood.reading import json_of, regular

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

T = TypeVar("T")
LONGEST, UNPACKED = 2**16, 2**30
"""Bytes of a line, and of the certificates in a row group of Parquet."""


class Claim(NamedTuple):
    """A line that says to be a certificate, and where it stands."""

    line: bytes
    place: str

    def certificate(self) -> Certificate:
        try:
            if len(self.line) > LONGEST:
                raise ValueError(f"it has more than {LONGEST:,} bytes, the most that Prood reads")
            return Certificate.from_json(self.line.decode())
        except ValueError as error:
            raise Damaged(f"{self.place} is not a certificate: {error}") from None


class File(ABC):
    """A file with certificates; `note` says what was left out of it, once it was read to its end."""

    def __init__(self, path: Path) -> None:
        self.path, self.note = path, ""

    @abstractmethod
    def claims(self, wanted: Sequence[int] | None = None) -> Iterator[Claim]:
        """All of them in their order, or those with these numbers, which rise from 0 on."""

    @abstractmethod
    def count(self) -> int:
        """How many there are. The file is read for it: what its footer says may be wrong."""


class Lines(File):
    """A line of JSON each. Empty lines count for nothing, nor does a last line that was cut off."""

    def claims(self, wanted: Sequence[int] | None = None) -> Iterator[Claim]:
        for place, line in chosen(self._lines(), wanted):
            yield Claim(line, f"line {place} of {self.path}")

    def count(self) -> int:
        return sum(1 for _ in self._lines())

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with accessible(self.path), regular(self.path) as file:
            number = 0
            while line := file.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST and not line.endswith(b"\n"):
                    while (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
                        pass
                elif not line.endswith(b"\n") and not is_json(line):
                    self.note = f"line {number} of {self.path} was cut off and is left out"
                    return
                if line.strip():
                    yield number, line.rstrip(b"\n")


class Table(File):
    """Parquet, whose columns `certificate` or `certificate_EPS` hold such lines; a row may have none."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        require_packages("scale", "pyarrow", what="reading Parquet")
        self._lengths: dict[int, int] = {}  # certificates by row group

    def claims(self, wanted: Sequence[int] | None = None) -> Iterator[Claim]:
        with self._opened() as table:
            before = 0
            for group in range(table.num_row_groups):
                here = None
                if wanted is not None:
                    end = before + self._length(table, group)
                    here = [one - before for one in wanted if before <= one < end]
                    before = end
                if here is None or here:
                    for place, line in chosen(self._cells(table, group), here):
                        yield Claim(line, f"{place} of {self.path}")

    def count(self) -> int:
        with self._opened() as table:
            return sum(self._length(table, group) for group in range(table.num_row_groups))

    def _length(self, table: pq.ParquetFile, group: int) -> int:
        if group not in self._lengths:
            batches = self._batches(table, group)
            self._lengths[group] = sum(len(cells) - cells.null_count for batch in batches for cells in batch.columns)
        return self._lengths[group]

    def _cells(self, table: pq.ParquetFile, group: int) -> Iterator[tuple[str, bytes]]:
        row = sum(table.metadata.row_group(one).num_rows for one in range(group))
        for batch in self._batches(table, group):
            for name, cells in zip(batch.schema.names, batch.columns, strict=True):
                for number, cell in enumerate(cells):
                    if cell.is_valid:
                        yield f"row {row + number}, column {name}", cell.value.as_buffer().to_pybytes()
            row += len(batch)

    def _batches(self, table: pq.ParquetFile, group: int) -> Iterator[pa.RecordBatch]:
        names = [name for name in table.schema_arrow.names if name == "certificate" or name.startswith("certificate_")]
        facts = table.metadata.row_group(group)
        sizes = [facts.column(one) for one in range(facts.num_columns)]
        if sum(one.total_uncompressed_size for one in sizes if one.path_in_schema in names) > UNPACKED:
            fault = f"{self.path} would unpack to more than {UNPACKED:,} bytes at a time"
            raise Damaged(f"{fault}: write it with smaller row groups")
        yield from table.iter_batches(batch_size=1024, row_groups=[group], columns=names, use_threads=False)

    @contextmanager
    def _opened(self) -> Iterator[pq.ParquetFile]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with accessible(self.path), regular(self.path) as file, pq.ParquetFile(file, pre_buffer=False) as table:
                found = [one for one in table.schema_arrow if one.name.partition("_")[0] == "certificate"]
                if not found or not all(str(one.type) in ("string", "large_string") for one in found):
                    fault = f"{self.path} has no column of certificates"
                    raise NotFound(f"{fault}: give a folder that 'prood certify --out FOLDER' wrote")
                # Equal texts stay one: a small file may repeat a long one in every row.
                names, facts = [one.name for one in found], table.metadata
                with pq.ParquetFile(file, metadata=facts, read_dictionary=names, pre_buffer=False) as opened:
                    yield opened
        except pa.ArrowException as error:
            raise Damaged(f"cannot read {self.path} as Parquet ({first_line(error)}): copy it again") from None


def chosen(found: Iterator[T], wanted: Sequence[int] | None) -> Iterator[T]:
    """These of what is found, by their numbers, which rise; nothing is read beyond the last."""
    if wanted is None:
        yield from found
        return
    before = -1
    for number in wanted:
        yield from islice(found, number - before - 1, number - before)
        before = number


def files(path: Path) -> list[File]:
    """A file of certificates, or all in a folder and in those below it; names in _ and . are left out."""
    if not path.is_dir():
        return [Table(path) if path.suffix == ".parquet" else Lines(path)]
    found = [one for one in sorted(path.rglob("*")) if one.suffix in (".jsonl", ".parquet")]
    shown = [one for one in found if not any(part[0] in "_." for part in one.relative_to(path).parts)]
    if not shown:
        raise NotFound(f"{path} holds no .parquet or .jsonl files: give what 'prood certify --out' wrote")
    return [Table(one) if one.suffix == ".parquet" else Lines(one) for one in shown]


def read(path: Path | str) -> tuple[list[Certificate], str]:
    """All certificates of a file of lines, and a note if its last line was cut off and is left out (else "")."""
    file = Lines(Path(path))
    return [claim.certificate() for claim in file.claims()], file.note


def append(path: Path | str, *certificates: Certificate) -> None:
    """Add lines. A last line that a kill has cut makes way: nobody could read it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{one.to_json()}\n" for one in certificates).encode()
    with path.open("ab+") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        if file.read(1) not in (b"", b"\n"):
            file.seek(0)
            last = file.read().rpartition(b"\n")[2]
            if is_json(last):
                lines = b"\n" + lines
            else:
                file.truncate(size - len(last))
        file.write(lines)


@contextmanager
def accessible(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NoAccess(f"cannot read {path}: {error.strerror or first_line(error)}") from None


def is_json(line: bytes) -> bool:
    try:
        json_of(line)
    except ValueError:
        return False
    return True
