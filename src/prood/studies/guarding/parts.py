"""The images of a guard: each folder divided into parts that serve one purpose each, as files of the run."""

import hashlib
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
from prood.data import Images, generator
from prood.errors import BadValue, Damaged
from prood.models.confidence import needed
from prood.training.recipe import GuardTable

TRAIN, HELD_BACK, CALIBRATION, TEST = "train", "held-back", "calibration", "test"
SMALL = "small"
"""The training images as g sees them: averaged down."""
FEWEST = 200
"""Images inside: with fewer, too few would be left to train on."""
FEWEST_OUTSIDE = 100
FILE = "parts.json"
_CHUNK = 512
_FEW = 64  # that are averaged at once


@dataclass(frozen=True)
class Parts:
    """Where the parts lie, and how many images each has: 'inside/train' → 6,000."""

    folder: Path
    counts: Mapping[str, int]
    inside: str  # the names of the folders in which the parts lie
    outside: str
    dropped: int = 0  # images that another part has, too
    damaged: int = 0

    def name(self, side: str, part: str) -> str:
        """The image set of this part, as `prood.data.load` knows it."""
        return f"npz:{self.folder / getattr(self, side) / part}.npz"

    def count(self, side: str, part: str) -> int:
        return self.counts.get(f"{side}/{part}", 0)

    def __str__(self) -> str:
        def told(side: str) -> str:
            named = {part: self.count(side, part) for part in (TRAIN, HELD_BACK, CALIBRATION, TEST)}
            return ", ".join(f"{count:,} {part}" for part, count in named.items() if count)

        dropped = f"; {self.dropped:,} duplicates left out" if self.dropped else ""
        damaged = f"; {self.damaged:,} damaged pictures left out" if self.damaged else ""
        return f"{self.inside}: {told('inside')}; {self.outside}: {told('outside')}{dropped}{damaged}"


def sizes(count: int, table: GuardTable) -> dict[str, int]:
    """How many of so many images inside go into each part; what is left is trained on."""
    least = {HELD_BACK: 20, CALIBRATION: needed(table.accept, table.level), TEST: 40}
    if len(table.shares) != 3 or sum(table.shares) >= 1:
        raise BadValue(f"shares = {list(table.shares)} must be three shares of the images that leave some to train on")
    shares = dict(zip(least, table.shares, strict=True))
    found = {part: max(least[part], min(table.most, round(shares[part] * count))) for part in least}
    if count < FEWEST or sum(found.values()) > count / 2:
        enough = max(FEWEST, 2 * sum(least.values()))
        raise BadValue(f"{count} images inside are too few to train, calibrate and test with: give {enough} or more")
    return found


def sizes_outside(count: int, table: GuardTable) -> dict[str, int]:
    """The same of the outliers, which no threshold is set by."""
    if count < FEWEST_OUTSIDE:
        fault = f"{count} images outside are too few to train and test with"
        raise BadValue(f"{fault}: give {FEWEST_OUTSIDE} or more, or none for made ones")
    return {HELD_BACK: min(table.most, count // 8), TEST: min(table.most, count // 5)}


def stratified(labels: Tensor | None, count: int, seed: int) -> Tensor:
    """The rows in a random order every beginning of which has the classes in their shares, up to one image each."""
    order = torch.randperm(count, generator=generator(seed, int.from_bytes(b"parts")))
    if labels is None:
        return order
    place = torch.empty(count, dtype=torch.float64)
    mixed = labels[order]
    for label in torch.unique(mixed).tolist():
        rows = (mixed == label).nonzero()[:, 0]
        place[rows] = (torch.arange(len(rows), dtype=torch.float64) + 0.5) / len(rows)
    return order[torch.argsort(place, stable=True)]


def divided(images: Images, counts: Mapping[str, int], seed: int) -> dict[str, Tensor]:
    """The rows of each part, those for training last and in the set's order."""
    order, found, start = stratified(images.labels, len(images), seed), {}, 0
    for part, count in counts.items():
        found[part], start = order[start : start + count], start + count
    return found | {TRAIN: order[start:].sort().values}


def make_parts(folder: Path, inside: Images, outside: Images, table: GuardTable, *, skip: bool) -> Parts:
    """Write the parts of both sets, unless they are there; an image that two parts share stays in one.

    Damaged pictures are refused, or left out with `skip`.
    """
    known = read_parts(folder)
    if known is not None:
        return known
    names = _folders(inside, outside)
    wanted = {"inside": sizes(len(inside), table), "outside": sizes_outside(len(outside), table)}
    seen: set[bytes] = set()
    counts: dict[str, int] = {}
    damaged: list[str] = []
    dropped = 0
    for side, images in {"inside": inside, "outside": outside}.items():
        target = folder / names[side]
        for part, rows in divided(images, wanted[side], table.seed).items():
            read = _Reading(images, rows, seen, damaged if skip else None)
            if part == TRAIN and table.classifier is None and table.factor > 1:
                whole = read.all(1)  # f is trained on what it takes, and g on what is left of it
                _write(target / f"{TRAIN}.npz", whole, images)
                _write(target / f"{SMALL}.npz", (averaged(whole[0], table.factor), whole[1]), images)
            elif part == TRAIN and table.factor > 1:
                _write(target / f"{SMALL}.npz", read.all(table.factor), images)
            else:
                _write(target / f"{part}.npz", read.all(1), images)
            counts[f"{side}/{part}"], dropped = read.kept, dropped + read.dropped
    found = {"counts": counts, **names, "dropped": dropped, "damaged": damaged}
    write_text(folder / FILE, json.dumps(found, indent=1) + "\n")
    return Parts(folder, counts, names["inside"], names["outside"], dropped, len(damaged))


def read_parts(folder: Path) -> Parts | None:
    """The parts that lie there whole."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        dropped, damaged = facts["dropped"], len(facts["damaged"])
        return Parts(folder, facts["counts"], facts["inside"], facts["outside"], dropped, damaged)
    except (ValueError, KeyError, TypeError):
        raise Damaged(f"{file} is damaged: remove the folder {folder}, and its images are read again") from None


def averaged(images: Tensor, factor: int) -> Tensor:
    """Bytes, averaged over squares as g does it with floats."""
    if factor == 1:
        return images
    return torch.cat([F.avg_pool2d(some.float(), factor).round().byte() for some in torch.split(images, _FEW)])


class _Reading:
    """Reads rows of a set in chunks, without images that an earlier part had; `damaged` collects what is skipped."""

    def __init__(self, images: Images, rows: Tensor, seen: set[bytes], damaged: list[str] | None) -> None:
        self.images, self.rows, self.seen, self.damaged = images, rows, seen, damaged
        self.kept = self.dropped = 0

    def all(self, factor: int) -> tuple[Tensor, Tensor | None]:
        """The images, averaged down, and their labels."""
        taken, kept, new = [], [], set()
        for some in torch.split(self.rows, _CHUNK):
            images, good = self._read(some)
            prints = [hashlib.sha256(image.contiguous().numpy().data).digest() for image in images]
            fresh = [place for place, one in enumerate(prints) if one not in self.seen]
            new |= {prints[place] for place in fresh}
            taken.append(averaged(images[fresh], factor))
            kept.append(good[fresh])
            self.dropped += len(good) - len(fresh)
        self.seen |= new
        rows = torch.cat(kept)
        self.kept = len(rows)
        if not len(rows):
            raise BadValue(f"all images of {self.images.name} are the same as those of another part: give others")
        return torch.cat(taken), None if self.images.labels is None else self.images.labels[rows]

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Images and their rows; where damaged ones are skipped and one of these is, each is tried alone."""
        try:
            return self.images.take(rows), rows
        except Damaged:
            if self.damaged is None:
                raise
        images, good = [torch.empty((0, *self.images.shape), dtype=torch.uint8)], [rows[:0]]
        for row in torch.split(rows, 1):
            try:
                images.append(self.images.take(row))
                good.append(row)
            except Damaged as error:
                self.damaged.append(str(error))
        return torch.cat(images), torch.cat(good)


def _write(file: Path, found: tuple[Tensor, Tensor | None], like: Images) -> None:
    images, labels = found
    arrays: dict[str, Any] = {"images": images.numpy()}
    if labels is not None:
        arrays["labels"] = labels.numpy()
        arrays |= {} if like.classes is None else {"classes": np.array(like.classes)}
    with replacing(file) as aside, aside.open("wb") as opened:
        np.savez(opened, **arrays)


def _folders(inside: Images, outside: Images) -> dict[str, str]:
    """The last steps of both names, where they tell the two apart."""
    named = [Path(one.name.rpartition(":")[2]).stem for one in (inside, outside)]
    plain = all(name.replace("-", "").replace("_", "").isalnum() for name in named)
    if not plain or named[0] == named[1]:
        named = ["inside", "outside"]
    return dict(zip(("inside", "outside"), named, strict=True))
