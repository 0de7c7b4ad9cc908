"""The flat columns of a row: their names, their types, and how rows without an answer look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prood.errors import BadValue

if TYPE_CHECKING:
    import pyarrow as pa

Rows = dict[str, NDArray[Any]]

_KINDS: Mapping[str, tuple[Any, Any, str]] = {  # dtype, what a row without an answer holds, the type in Parquet
    "label": (np.int64, -1, "int64"),
    "confidence": (np.float64, np.nan, "float64"),
    "p_in": (np.float64, np.nan, "float64"),
    "accepted": (np.bool_, False, "bool_"),
    "upper_bound": (np.float64, np.nan, "float64"),
    "rejected": (np.bool_, False, "bool_"),
    "radius": (np.float64, np.nan, "float64"),
    "certificate": (object, None, "string"),
    "reason": (object, None, "string"),
    "sha256": (object, None, "string"),
    "fingerprint": (object, None, "string"),
    "bound": (object, None, "string"),
    "error": (object, None, "string"),
}


@dataclass(frozen=True)
class Columns:
    """The columns of one detector: `all` that it can fill, and those that are `asked` for.

    Certificates are long: they are there only where they are asked for by name.
    """

    all: tuple[str, ...]
    asked: tuple[str, ...]

    @classmethod
    def of(cls, eps: Sequence[float], *, threshold: bool, radius: bool, asked: Sequence[str] | None) -> Columns:
        """Without a threshold nothing is accepted or rejected, and there are no such columns."""
        names = ["label", "confidence", "p_in"]
        names += ["accepted", "reason"] if threshold else []
        proofs = [f"certificate_{one:g}" for one in eps]
        for one in eps:
            names += [f"upper_bound_{one:g}"] + ([f"rejected_{one:g}"] if threshold else [])
        if len(set(names)) != len(names):
            raise BadValue(f"two of the radii {', '.join(map(repr, eps))} would name the same column: leave one out")
        names += ["radius"] if radius else []
        names += ["bound"] if eps or radius else []
        names += ["sha256", "fingerprint", "error"]
        return cls((*names, *proofs), tuple(names if asked is None else dict.fromkeys(asked)))

    @property
    def own(self) -> tuple[str, ...]:
        return tuple(name for name in self.asked if name in self.all)

    @property
    def carried(self) -> tuple[str, ...]:
        """Those that are taken over from the input."""
        return tuple(name for name in self.asked if name not in self.all)

    def wants(self, kind: str) -> bool:
        return any(kind_of(name) == kind for name in self.own)

    def blank(self, count: int) -> Rows:
        """Rows without an answer."""
        kinds = {name: _KINDS[kind_of(name)] for name in self.all}
        return {name: np.full(count, empty, dtype=dtype) for name, (dtype, empty, _) in kinds.items()}


def kind_of(name: str) -> str:
    """`upper_bound` for `upper_bound_0.01`."""
    return next((kind for kind in ("upper_bound", "rejected", "certificate") if name.startswith(f"{kind}_")), name)


def schema_of(names: Sequence[str]) -> pa.Schema:
    """Arrow's types for these columns of a Scorer, after `image`, the name of each row's image."""
    import pyarrow as pa

    kinds = {name: _KINDS[kind_of(name)][2] for name in names}
    return pa.schema([("image", pa.string()), *((name, getattr(pa, kind)()) for name, kind in kinds.items())])


def table_of(rows: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """The same as a table, in which a row without an answer has nulls instead of NaN, −1 and False."""
    import pyarrow as pa

    failed = np.array([error is not None for error in rows["error"]], dtype=bool)
    arrays = []
    for field in schema:
        values = rows[field.name]
        if pa.types.is_string(field.type):
            arrays.append(pa.array(list(values), pa.string()))
        else:
            arrays.append(pa.array(values, field.type, mask=failed))
    return pa.Table.from_arrays(arrays, schema=schema)
