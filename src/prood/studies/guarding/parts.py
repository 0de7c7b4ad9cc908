"""The images of a guard: each set divided into parts that serve one purpose each, as files of the run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from prood.atomic import replacing, write_text
from prood.data import Images, made_outliers
from prood.errors import BadValue, Damaged
from prood.models.confidence import needed
from prood.reading import json_of, text
from prood.training.guard_table import GuardTable

TRAIN, HELD_BACK, CALIBRATION, TEST = "train", "held-back", "calibration", "test"
SMALL = "small"
"""The training images as g sees them: averaged down."""
FEWEST, FEWEST_OUTSIDE = 200, 100
MADE = {TRAIN: 4000, HELD_BACK: 250, TEST: 500}
"""Outliers that are made where none are given; those of the test from images that g was not trained on."""
FILE = "parts.json"
_FEW = 256  # images that are averaged at once

Sides = dict[str, dict[str, Images]]


@dataclass(frozen=True)
class Parts:
    """Where the parts lie, and how many images each has: 'inside/train' → 6,000."""

    folder: Path
    counts: Mapping[str, int]
    inside: str  # the names of the folders in which the parts lie
    outside: str
    shared: int = 0  # images outside that are inside, too, and were left out

    def name(self, side: str, part: str) -> str:
        """The image set of this part, as `prood.data.load` knows it."""
        return f"npz:{self.folder / getattr(self, side) / part}.npz"

    def __str__(self) -> str:
        def told(side: str) -> str:
            named = {part: self.counts.get(f"{side}/{part}", 0) for part in (TRAIN, HELD_BACK, CALIBRATION, TEST)}
            return ", ".join(f"{count:,} {part}" for part, count in named.items() if count)

        shared = f" ({self.shared:,} that are {self.inside}, too, left out)" if self.shared else ""
        return f"{self.inside}: {told('inside')}; {self.outside}: {told('outside')}{shared}"


def sizes(count: int, table: GuardTable) -> dict[str, int]:
    """How many of `count` images inside go into each part; the rest is for training."""
    least = {HELD_BACK: 20, CALIBRATION: needed(table.accept, table.level), TEST: 40}
    if len(table.shares) != 3 or not sum(table.shares) < 1:
        raise BadValue(f"shares = {list(table.shares)} must be three shares of the images that leave some to train on")
    shares = dict(zip(least, table.shares, strict=True))
    found = {part: max(least[part], min(table.most, round(shares[part] * count))) for part in least}
    enough = max(FEWEST, 2 * sum(least.values()))
    if count < enough:
        fault = f"{count} images inside are too few to train, calibrate and test with"
        raise BadValue(f"{fault}: give {enough} or more")
    return {TRAIN: count - sum(found.values())} | found


def sizes_outside(count: int, table: GuardTable, shared: int = 0) -> dict[str, int]:
    """Sizes of the outliers' parts; no threshold is set by them. `shared` images are inside, too, and left out."""
    if count < FEWEST_OUTSIDE:
        others = f", as {shared:,} more are inside, too," if shared else ""
        fault = f"{count} images outside{others} are too few to train and test with"
        raise BadValue(f"{fault}: give {FEWEST_OUTSIDE} or more, or leave out --outside and they are made")
    held, test = min(table.most, count // 8), min(table.most, count // 5)
    return {TRAIN: count - held - test, HELD_BACK: held, TEST: test}


def make_parts(folder: Path, inside: Images, outside: Images | None, table: GuardTable) -> Parts:
    """Write the parts of both sets, unless they are there. Equal images never come into two of them."""
    known = read_parts(folder)
    if known is not None:
        return known
    chosen = inside.subset(table.images, table.seed).prepared()
    sides = {"inside": _parted(chosen, sizes(len(chosen), table), table.seed)}
    shared = 0
    if outside is None:
        sides["outside"] = {
            part: made_outliers(sides["inside"][part], count, table.seed + place)
            for place, (part, count) in enumerate(MADE.items())
        }
    else:
        others = outside.subset(table.images, table.seed).prepared()
        known_marks = set(chosen.marks())
        rows = [row for row, mark in enumerate(others.marks()) if mark not in known_marks]
        shared = len(others) - len(rows)
        sides_outside = sizes_outside(len(rows), table, shared)
        sides["outside"] = _parted(others.select(rows), sides_outside, table.seed)
    names = _folders(inside, outside)
    for side, parts in sides.items():
        for part, images in parts.items():
            if part != TRAIN or table.factor == 1 or table.classifier is None:
                _write(folder / names[side] / f"{part}.npz", images, 1)
            if part == TRAIN and table.factor > 1:
                _write(folder / names[side] / f"{SMALL}.npz", images, table.factor)
    counts = {f"{side}/{part}": len(images) for side, parts in sides.items() for part, images in parts.items()}
    write_text(folder / FILE, json.dumps({"counts": counts, **names, "shared": shared}, indent=1) + "\n")
    return Parts(folder, counts, names["inside"], names["outside"], shared)


def read_parts(folder: Path) -> Parts | None:
    """The parts that lie there whole."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        facts = json_of(text(file))
        return Parts(folder, facts["counts"], facts["inside"], facts["outside"], facts["shared"])
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{file} is damaged: remove the folder {folder}, and the images are read again") from None


def averaged(images: Tensor, factor: int) -> Tensor:
    """Bytes, averaged over squares as g does it with floats."""
    return images if factor == 1 else F.avg_pool2d(images.float(), factor).round().byte()


def _parted(images: Images, counts: Mapping[str, int], seed: int) -> dict[str, Images]:
    found: dict[str, Images] = {}
    found |= images.parted({part: count / len(images) for part, count in counts.items()}, seed)
    return found


def _write(file: Path, images: Images, factor: int) -> None:
    arrays: dict[str, Any] = {}
    taken = [averaged(images.take(list(rows)), factor) for rows in _chunks(len(images))]
    arrays["images"] = torch.cat(taken).numpy()
    labels = getattr(images, "labels", None)
    if labels is not None:
        arrays["labels"] = labels.numpy()
        arrays |= {} if images.classes is None else {"classes": np.array(images.classes)}
    with replacing(file) as aside, aside.open("wb") as opened:
        np.savez(opened, **arrays)


def _chunks(count: int) -> list[range]:
    return [range(start, min(start + _FEW, count)) for start in range(0, count, _FEW)]


def _folders(inside: Images, outside: Images | None) -> dict[str, str]:
    """The last steps of both names, if they tell the two apart and are not names of parts."""
    named = ["made" if one is None else Path(one.name.rpartition(":")[2]).stem for one in (inside, outside)]
    plain = all(name.replace("-", "").replace("_", "").isalnum() for name in named)
    if not plain or named[0] == named[1] or {TRAIN, "val", TEST} & set(named):
        named = ["inside", "outside"]
    return dict(zip(("inside", "outside"), named, strict=True))
