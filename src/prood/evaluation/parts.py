"""What the processes of an evaluation have measured: a part for each batch, in a file that its process alone writes.

No process waits while there is work, and stored parts are reused: a process reads
its own parts. Whoever finds that none is missing puts them together.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prood import processes
from prood.atomic import locked, replacing
from prood.reading import check_sizes

GALLERY = 6
"""Number of images with the highest attacked scores, and with the highest bounds, that are kept to be shown."""
CLEAN, ATTACKED, CERTIFIED, SETTLED = range(4)


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows: a column of numbers for each, what the attack cost, and the pictures that may be worth a look."""

    rows: NDArray[np.int64]
    columns: NDArray[np.float64]  # (4, rows): clean, attacked, certified, settled
    costs: NDArray[np.float64]  # passes forward and backward, seconds, and how many each attack found
    top: NDArray[np.int64]  # among the rows
    shown: NDArray[np.uint8]

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, costs: Tensor, points: Tensor) -> Part:
        """`points` are the images that the attack found; only the first few are kept."""
        top = highest(columns[ATTACKED], columns[CERTIFIED])
        shown = (points[top.to(points.device)] * 255).round().to(torch.uint8).cpu()
        return cls(rows.numpy(), columns.numpy(), costs.numpy(), top.numpy(), shown.numpy())


def highest(attacked: Tensor, certified: Tensor) -> Tensor:
    """The places with the highest attacked scores, and of those with the highest bounds that are finite."""
    finite = certified.isfinite().nonzero().squeeze(1)  # none where there is no certificate
    bounds = finite[certified[finite].topk(min(GALLERY, len(finite))).indices]
    top = torch.cat([attacked.topk(min(GALLERY, len(attacked))).indices, bounds])
    return torch.tensor(list(dict.fromkeys(top.tolist())), dtype=torch.int64)


@dataclass(frozen=True)
class Shelf:
    """The parts of one evaluation in a folder that all processes see; `counts` are the parts of each of them."""

    folder: Path
    counts: tuple[int, ...]

    def path(self, number: int, rank: int | None = None) -> Path:
        whose = processes.rank() if rank is None else rank
        return self.folder / f"{whose}-of-{len(self.counts)}-{number}-of-{self.counts[whose]}.npz"

    def own(self, number: int, rows: Tensor) -> Part | None:
        """What this process has measured before, unless it is about other rows or cannot be read."""
        part = _load(self.path(number))
        return part if part is not None and np.array_equal(part.rows, rows.numpy()) else None

    def put(self, number: int, part: Part) -> None:
        with replacing(self.path(number)) as aside, aside.open("wb") as opened:
            np.savez(opened, **{one.name: getattr(part, one.name) for one in fields(Part)})

    @contextmanager
    def taken(self) -> Iterator[list[Part] | None]:
        """All parts, for the one that comes last; they are removed when it is done. None for all others."""
        with locked(self.folder.with_name(f"{self.folder.name}.all")):
            paths = [self.path(number, rank) for rank, count in enumerate(self.counts) for number in range(count)]
            parts = [_load(path) for path in paths] if all(path.is_file() for path in paths) else [None]
            whole = [part for part in parts if part is not None]
            yield whole if len(whole) == len(parts) else None
            if len(whole) == len(parts):
                shutil.rmtree(self.folder, ignore_errors=True)


def _load(file: Path) -> Part | None:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            check_sizes(arrays.zip, file, file.stat().st_size)
            return Part(**{one.name: arrays[one.name] for one in fields(Part)})
    except Exception:  # cut short or foreign, in a dozen ways: it is measured again
        return None


def joined(parts: Sequence[Part], count: int) -> tuple[Tensor, Tensor, dict[int, Any]]:
    """The columns of all images, with zeros where others have measured, the costs, and the pictures by their places."""
    columns = torch.zeros(4, count, dtype=torch.float64)
    pictures: dict[int, Any] = {}
    for part in parts:
        columns[:, torch.from_numpy(part.rows)] = torch.from_numpy(part.columns)
        pictures |= {int(part.rows[one]): picture for one, picture in zip(part.top, part.shown, strict=True)}
    return columns, sum((torch.from_numpy(part.costs) for part in parts), torch.zeros(())), pictures
