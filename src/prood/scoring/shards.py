"""One Parquet file for each shard, written aside and renamed: a shard that is there is done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prood.atomic import replacing
from prood.errors import Mismatch, NoAccess
from prood.reading import json_of
from prood.scoring.columns import table_of

if TYPE_CHECKING:
    import pyarrow as pa

KEY = b"prood"
Counts = Counter[str]


def shard_path(out: Path, number: int) -> Path:
    return out / f"scores-{number:06}.parquet"


def write(path: Path, identity: str, schema: pa.Schema, parts: Iterable[dict[str, object]]) -> Counts:
    """Write the rows part by part, in constant memory; the footer says whose they are, and their totals."""
    import pyarrow.parquet as pq

    totals: Counts = Counter(images=0)
    with replacing(path) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as file:
        for part in parts:
            table = table_of(part, schema)
            totals.update(_counted(table))
            file.write_table(table)
        facts = {"identity": identity, "totals": dict(totals)}
        file.add_key_value_metadata({KEY: json.dumps(facts).encode()})
    return totals


def _counted(table: pa.Table) -> Counts:
    import pyarrow.compute as pc

    counts: Counts = Counter(images=len(table), errors=len(table) - table["error"].null_count)
    for name in table.column_names:
        if name == "accepted" or name.startswith("rejected_"):
            counts[name] = pc.sum(table[name]).as_py() or 0
    return counts


def done(path: Path, identity: str) -> Counts | None:
    """The totals of a shard that is there; None if it is not, or is cut short. One of another job is refused."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        facts = json_of((pq.read_metadata(path).metadata or {})[KEY])
        whose, totals = facts["identity"], Counter({**facts["totals"]})
        if not all(type(count) is int for count in totals.values()):
            raise TypeError
    except FileNotFoundError:
        return None
    except (pa.ArrowException, KeyError, ValueError, TypeError):
        return None  # what a full disk or a broken copy has left is written again
    except OSError as error:
        if error.errno is not None:
            raise NoAccess(f"cannot read {path} ({error.strerror}): check its permissions") from None
        return None  # so Arrow says that a footer is damaged
    if whose != identity:
        raise Mismatch(f"{path} belongs to other images, settings or another model: give another --out")
    return totals
