"""`mosaic:FOLDER/SPLIT`: 32×32 images as tiles of big lossless sheets, `SPLIT-00.webp`, `SPLIT-01.webp` …

A sheet has 100 tiles a row. Beside the sheets may lie `SPLIT-labels.npy` and, for their names, `classes.txt`.
"""

import re
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from prood.data.images import ImageSet
from prood.data.sources import Shape, file_source
from prood.errors import ProodError

_SIDE = 32
_COLUMNS = 100


@file_source("mosaic", description="your own: FOLDER/SPLIT for 32×32 tiles in FOLDER/SPLIT-00.webp, SPLIT-01.webp …")
def read_mosaic(path: Path, shape: Shape | None = None) -> ImageSet:
    """All tiles of the sheets, row by row; as many as there are labels, or all but the black ones at the very end."""
    tiles = [_tiles(sheet) for sheet in _sheets(path)]
    labels = _labels(path.with_name(f"{path.name}-labels.npy"))
    last = len(tiles[-1])
    # What is left over in the last row of the last sheet is black.
    while last and not tiles[-1][last - 1].any():
        last -= 1
    images = np.concatenate(tiles)
    shown = len(images) - len(tiles[-1]) + last
    name = f"mosaic:{path}"
    if labels is None:
        if shown == 0:
            raise ProodError(f"the sheets of {path} are all black: make them again")
        return ImageSet(name, torch.from_numpy(images[:shown]))
    if not shown <= len(labels) <= len(images):
        raise ProodError(f"{path}-labels.npy holds {len(labels)} labels for {shown} images: one of them is incomplete")
    classes = _classes(path.with_name("classes.txt"))
    return ImageSet(name, torch.from_numpy(images[: len(labels)]), torch.from_numpy(labels), classes)


def _sheets(path: Path) -> list[Path]:
    """The sheets in order."""
    pattern = re.compile(re.escape(path.name) + r"-(\d{2,9})\.webp")
    try:
        found = {int(match[1]): file for file in path.parent.iterdir() if (match := pattern.fullmatch(file.name))}
    # ValueError: a null byte in the path.
    except (OSError, ValueError) as error:
        raise ProodError(f"cannot look into the folder {path.parent}: write mosaic:FOLDER/SPLIT") from error
    if not found:
        raise ProodError(f"there is no {path}-00.webp: write mosaic:FOLDER/SPLIT for the sheets FOLDER/SPLIT-00.webp …")
    for number in range(max(found)):
        if number not in found:
            raise ProodError(f"there is no {path}-{number:02d}.webp, but later sheets are there: get it, too")
    return [found[number] for number in sorted(found)]


def _tiles(path: Path) -> NDArray[np.uint8]:
    """The tiles of one sheet: (N, 3, 32, 32)."""
    try:
        with Image.open(path, formats=["WEBP"]) as sheet:
            width, height = sheet.size
            # Looked at before anything is decoded.
            fits = width == _COLUMNS * _SIDE and height % _SIDE == 0
            pixels = np.asarray(sheet.convert("RGB")) if fits else None
    # Pillow raises SyntaxError, ValueError and others besides OSError for a broken file.
    except Exception as error:
        raise ProodError(f"cannot read the sheet {path} ({type(error).__name__}): get it again") from error
    if pixels is None:
        raise ProodError(
            f"the sheet {path} has {width} × {height} pixels: it must be {_COLUMNS * _SIDE} wide and a multiple of "
            f"{_SIDE} high"
        )
    grid = pixels.reshape(height // _SIDE, _SIDE, _COLUMNS, _SIDE, 3)
    return grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, _SIDE, _SIDE)


def _labels(path: Path) -> NDArray[np.int64] | None:
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            labels = np.load(file, allow_pickle=False)
    # NumPy's parser fails in many ways on a broken file.
    except Exception as error:
        raise ProodError(f"cannot read labels from {path} ({type(error).__name__}): get it again") from error
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ProodError(f"{path} holds no list of integers: write it with numpy.save(path, labels)")
    return labels.astype(np.int64)


def _classes(path: Path) -> tuple[str, ...] | None:
    if not path.exists():
        return None
    try:
        return tuple(path.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError) as error:
        raise ProodError(f"cannot read the names of the classes in {path}: write a name a line in UTF-8") from error
