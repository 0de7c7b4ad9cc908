"""80 Million Tiny Images, what the paper trains with next to CIFAR as out-distribution: 243 GB in one file.

Nothing but the images asked for is ever read.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prood.data.formats import reading
from prood.data.images import Shape, fingerprint
from prood.data.order import generator
from prood.data.public.known import known
from prood.data.stored import StoredSet
from prood.errors import Damaged, NotFound

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


@known("tiny-images")
def tiny_images(folder: Path, split: str, shape: Shape | None = None, *, boundary: int = 1_000_000) -> StoredSet:
    """Train: all images from `boundary` on. Test: a fixed choice of 1,000 before it, or all if there are fewer.

    The images of CIFAR are left out of both. If the file ends before the boundary, it has no train split.
    """
    path = folder / "tiny_images.bin"
    count = count_images(path)
    lists = sorted(folder.glob("*cifar_idxs.txt"))
    if split == "train" and not lists:
        hint = "put 80mn_cifar_idxs.txt there, as CIFAR is a part of the Tiny Images and no out-distribution"
        raise NotFound(f"there is no list of the images of CIFAR in {folder}: {hint}")
    excluded = read_excluded(lists, count)
    name = f"tiny-images:{split}"
    if split == "train":
        if count <= boundary:
            raise Damaged(f"{path} has {count} images, and train begins after {boundary}: copy all of it")
        return StoredSet(name, TinyImages(path, boundary, count, excluded), _SHAPE)
    stop = min(boundary, count)
    # Drawn before any image is left out, so that a list changes no more than it must.
    drawn = torch.randperm(stop, generator=generator(0))
    rows = drawn[~torch.isin(drawn, torch.from_numpy(excluded))][:1_000]
    return StoredSet(name, TinyImages(path, 0, stop, excluded[:0]), _SHAPE, rows=rows)


@dataclass(frozen=True, eq=False)
class TinyImages:
    """The images `start` ≤ index < `stop` of the file but for the `excluded` ones, which are sorted."""

    path: Path
    start: int
    stop: int
    excluded: NDArray[np.int64]

    def __len__(self) -> int:
        return self.stop - self.start - len(self._kept_before)

    def index(self, row: int) -> int:
        """Where in the file the image of this row lies.

        Before the excluded image number j, at index e_j, stand e_j − start − j others. So the row is moved on by the
        number of excluded images for which that is at most `row`.
        """
        return self.start + row + int(np.searchsorted(self._kept_before, row, side="right"))

    def read(self, row: int) -> Tensor:
        # In the file a colour follows the other, and in a colour a column the other, as in MATLAB.
        image = self._images[self.index(row)].reshape(_SHAPE[::-1], order="F")
        return torch.from_numpy(image.transpose(2, 0, 1).copy())

    def fingerprint(self) -> str:
        """Over the size of the file, the choice of images, and 64 images spread over the file."""
        rows = np.linspace(0, len(self._images) - 1, 64).astype(np.int64)
        sample, excluded = torch.from_numpy(self._images[rows]), torch.from_numpy(self.excluded)
        return fingerprint(len(self._images), self.start, self.stop, excluded, sample)

    @cached_property
    def _kept_before(self) -> NDArray[np.int64]:
        inside = self.excluded[(self.excluded >= self.start) & (self.excluded < self.stop)]
        return inside - self.start - np.arange(len(inside))

    @cached_property
    def _images(self) -> "np.memmap[tuple[int, int], np.dtype[np.uint8]]":
        """The file as it lies on disk, opened with the first image that is read and then kept."""
        count = count_images(self.path)
        if count < self.stop:
            raise Damaged(f"{self.path} has become shorter than {self.stop} images: copy it again")
        with reading(self.path, "copy it again"):
            return np.memmap(self.path, np.uint8, "r", shape=(count, _PIXELS))

    def __getstate__(self) -> dict[str, object]:
        # A pickled map would be the whole file.
        return {key: value for key, value in self.__dict__.items() if key != "_images"}


def count_images(path: Path) -> int:
    """How many images the file holds, by its size."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise NotFound(f"there is no file {path}: put tiny_images.bin there") from error
    if size == 0 or size % _PIXELS:
        raise Damaged(f"{path} has {size} bytes, not a multiple of {_PIXELS}: copy the incomplete file again")
    return size // _PIXELS


def read_excluded(paths: list[Path], count: int) -> NDArray[np.int64]:
    """The indices in these lists, one a line, sorted and counted from 0.

    The lists count from 1, and a 0 in them stands for an image of CIFAR that does not come from the Tiny Images.
    """
    found: set[int] = set()
    for path in paths:
        with reading(f"the indices in {path}", "copy it again"):
            lines = path.read_text(encoding="ascii").splitlines()
        for number, line in enumerate(lines, 1):
            text = line.strip()
            # Nineteen digits are too many, and int() refuses thousands of them with an error of its own.
            if not text.isdigit() or len(text) > 18:
                raise Damaged(f"line {number} of {path} is {text[:20]!r}, not an index: copy the list again")
            if int(text) > count:
                raise Damaged(f"line {number} of {path} is {text}, but there are {count} images: one is incomplete")
            found.add(int(text) - 1)
    return np.array(sorted(found - {-1}), dtype=np.int64)
