"""The scores of all images of an evaluation, as arrays in a file that is read when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prood.atomic import replacing
from prood.errors import Damaged
from prood.reading import check_sizes, regular

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """For histograms and curves: one float64 score per image.

    `attacked` is None where no attack was run; `certified` is +∞ where there is no certificate. `gallery` names the
    images (places in `clean`) with the highest attacked and certified scores, and shows them before and after the
    attack as uint8 (k, C, H, W).
    """

    inside: Floats
    clean: Floats
    certified: Floats
    attacked: Floats | None = None
    gallery: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    gallery_clean: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 1, 1, 1), np.uint8))
    gallery_attacked: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, 1, 1, 1), np.uint8))

    def save(self, file: Path) -> None:
        arrays = {name: getattr(self, name) for name in NAMES}
        with replacing(file) as aside, aside.open("wb") as opened:
            np.savez_compressed(opened, **{name: value for name, value in arrays.items() if value is not None})

    @staticmethod
    def load(file: Path) -> Scores:
        try:
            with regular(file) as opened, np.load(opened, allow_pickle=False) as arrays:
                check_sizes(arrays.zip, file, file.stat().st_size)
                found = Scores(**{name: arrays[name] for name in arrays.files})
            _check(found)
            return found
        # A foreign or truncated file can fail anywhere inside zip, zlib or NumPy's header parser, in a dozen ways.
        except Exception as error:
            fault = " ".join(str(error).split())
            raise Damaged(f"{file} cannot be read ({fault}): evaluate again") from None


def _check(scores: Scores) -> None:
    """A ValueError for what no evaluation has written: one number for each image, and pictures for some of them."""
    if not all(isinstance(values, np.ndarray) for name, values in vars(scores).items() if name != "attacked"):
        raise ValueError("a member is not an array")  # but is given out as its bytes
    for name in ("inside", "clean", "certified", "attacked"):
        values = getattr(scores, name)
        if values is not None and not (
            isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.ndim == 1
        ):
            raise ValueError(f"{name} is not a list of numbers")
    count = len(scores.clean)
    if any(values is not None and len(values) != count for values in (scores.certified, scores.attacked)):
        raise ValueError("there is not one number for each image")
    places, pictures = scores.gallery, (scores.gallery_clean, scores.gallery_attacked)
    if places.dtype.kind != "i" or places.ndim != 1 or not ((places >= 0) & (places < count)).all():
        raise ValueError("its gallery shows other images")
    if any(one.dtype != np.uint8 or one.ndim != 4 or len(one) != len(places) for one in pictures):
        raise ValueError("its gallery is not a list of pictures")


NAMES = tuple(item.name for item in fields(Scores))


class StoredScores(Scores):
    """Scores in a file, read as soon as one is asked for, as most readers want metrics only; then that may fail."""

    def __init__(self, file: Path) -> None:
        vars(self)["file"] = file

    def __getattribute__(self, name: str) -> Any:
        own = super().__getattribute__("__dict__")
        if name in NAMES and name not in own:
            own |= vars(Scores.load(own["file"]))
        return super().__getattribute__(name)
