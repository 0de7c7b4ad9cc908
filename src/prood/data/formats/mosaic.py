"""32×32 images as tiles of big lossless sheets, `SPLIT-00.webp`, `SPLIT-01.webp` …, in a folder.

A sheet has 100 tiles a row. Beside the sheets may lie `SPLIT-labels.npy` and, for their names, `classes.txt`. Such a
folder is named by its path, `mosaic:FOLDER/SPLIT`, or, inside the data folder, by its name alone.
"""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from prood.data.formats import reading
from prood.data.images import ImageSet, Shape
from prood.errors import Damaged, NoAccess, NotFound
from prood.reading import content

T = TypeVar("T")

_SIDE = 32
_COLUMNS = 100
_SHEET = re.compile(r"([A-Za-z0-9_-]+)-\d{2,9}\.webp")


def splits(folder: Path) -> tuple[str, ...]:
    """The splits that have sheets in this folder; none if it cannot be looked into."""
    try:
        return tuple(sorted({match[1] for file in folder.iterdir() if (match := _SHEET.fullmatch(file.name))}))
    except OSError:
        return ()


def files(path: Path) -> list[Path]:
    """Everything that FOLDER/SPLIT is read from: the sheets in order, then labels and classes if they are there."""
    return [*_sheets(path), *(file for file in (_labels_file(path), path.with_name("classes.txt")) if file.exists())]


def about_count(path: Path) -> int:
    """How many images FOLDER/SPLIT has, from the sizes of its sheets: a last row that is not full counts as full."""
    return sum(_opened(sheet, lambda found: found.height) // _SIDE * _COLUMNS for sheet in _sheets(path))


def read_mosaic(path: Path, shape: Shape | None = None, *, name: str | None = None) -> ImageSet:
    """All tiles of the sheets, row by row; as many as there are labels, or all but the black ones at the very end.

    The set is called `name`, or else by its path. It is 32×32 whatever `shape` is.
    """
    tiles = [_tiles(sheet) for sheet in _sheets(path)]
    labels = _labels(_labels_file(path))
    images = np.concatenate(tiles)
    shown = len(images)
    # What is left over in the last row of the last sheet is black.
    while shown > len(images) - len(tiles[-1]) and not images[shown - 1].any():
        shown -= 1
    name = name or f"mosaic:{path}"
    if labels is None:
        if shown == 0:
            raise Damaged(f"the sheets of {path} are all black: make them again")
        return ImageSet(name, torch.from_numpy(images[:shown]))
    if not shown <= len(labels) <= len(images):
        raise Damaged(f"{path}-labels.npy holds {len(labels)} labels for {shown} images: one of them is incomplete")
    classes = _classes(path.with_name("classes.txt"))
    return ImageSet(name, torch.from_numpy(images[: len(labels)]), torch.from_numpy(labels), classes)


def _labels_file(path: Path) -> Path:
    return path.with_name(f"{path.name}-labels.npy")


def _sheets(path: Path) -> list[Path]:
    """The sheets in order."""
    pattern = re.compile(re.escape(path.name) + r"-(\d{2,9})\.webp")
    try:
        found = {int(match[1]): file for file in path.parent.iterdir() if (match := pattern.fullmatch(file.name))}
    # ValueError: a null byte in the path.
    except (OSError, ValueError) as error:
        raise NoAccess(f"cannot look into the folder {path.parent}: write mosaic:FOLDER/SPLIT") from error
    if not found:
        raise NotFound(f"there is no {path}-00.webp: write mosaic:FOLDER/SPLIT for the sheets FOLDER/SPLIT-00.webp …")
    for number in range(max(found)):
        if number not in found:
            raise NotFound(f"there is no {path}-{number:02d}.webp, but later sheets exist: get the missing sheet")
    return [found[number] for number in sorted(found)]


def _tiles(path: Path) -> NDArray[np.uint8]:
    """The tiles of one sheet: (N, 3, 32, 32)."""
    pixels = _opened(path, lambda found: np.asarray(found.convert("RGB")))
    grid = pixels.reshape(-1, _SIDE, _COLUMNS, _SIDE, 3)
    return grid.transpose(0, 2, 4, 1, 3).reshape(-1, 3, _SIDE, _SIDE)


def _opened(path: Path, look: Callable[[Image.Image], T]) -> T:
    """What `look` makes of a sheet, whose size is checked before anything is decoded."""
    with reading(f"the sheet {path}", "get it again"), Image.open(io.BytesIO(content(path)), formats=["WEBP"]) as sheet:
        width, height = sheet.size
        if width == _COLUMNS * _SIDE and height % _SIDE == 0:
            return look(sheet)
    right = f"{_COLUMNS * _SIDE} wide and a multiple of {_SIDE} high"
    raise Damaged(f"the sheet {path} has {width} × {height} pixels: it must be {right}")


def _labels(path: Path) -> NDArray[np.int64] | None:
    if not path.exists():
        return None
    with reading(f"labels from {path}", "get it again"), io.BytesIO(content(path)) as file:
        labels = np.load(file, allow_pickle=False)
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise Damaged(f"{path} does not hold a list of integers: write it with numpy.save(path, labels)")
    return labels.astype(np.int64)


def _classes(path: Path) -> tuple[str, ...] | None:
    if not path.exists():
        return None
    with reading(f"the names of the classes in {path}", "write a name a line in UTF-8"):
        return tuple(content(path).decode().splitlines())
