"""The images that are to be certified: pictures by path, and image sets by name."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from prood import data
from prood.data import ImageSet, StoredSet
from prood.data.formats.pictures import decode, fit, has_frames
from prood.errors import Mismatch, Unsupported

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Inputs:
    """Images by place: pictures and the rows of image sets. They are read when needed.

    A picture of another size than the model's is fitted: the largest rectangle of the model's aspect around its centre,
    resized with a bilinear filter. The certificate is about the pixels that come out, and so is its hash.
    """

    names: tuple[tuple[str, int | None], ...]  # name of a set and row, or path of a picture and None
    sets: Mapping[str, ImageSet | StoredSet]
    shape: Shape

    def __len__(self) -> int:
        return len(self.names)

    def read(self, places: Sequence[int]) -> Tensor:
        """float32 in [0, 1], (N, C, H, W)."""
        images = [self._image(*self.names[place]) for place in places]
        return torch.stack(images).float() / 255

    def _image(self, name: str, row: int | None) -> Tensor:
        return fit(_still(Path(name)), self.shape) if row is None else self.sets[name].take([row])[0]


def inputs(names: Sequence[str], shape: Shape, limit: int | None) -> Inputs:
    """Pictures by path and image sets by name, of which the first `limit` images."""
    found: list[tuple[str, int | None]] = []
    sets: dict[str, ImageSet | StoredSet] = {}
    for name in names:
        if Path(name).is_file():
            found.append((name, None))
            continue
        images = data.open_set(name, shape=shape, split="test")
        if images.shape != shape:
            raise Mismatch(f"{name} has images of shape {images.shape}, and the model takes {shape}")
        sets[images.name] = images
        found += [(images.name, row) for row in range(len(images) if limit is None else min(limit, len(images)))]
    return Inputs(tuple(found), sets, shape)


def _still(path: Path) -> Image.Image:
    """A picture of one frame: a certificate names the file, and would seem to be about all of them."""
    picture = decode(path)  # a damaged one is refused there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path) as opened:
            try:
                several = has_frames(opened)
            except Exception:  # a second one that is damaged is one, too
                several = True
    if several:
        raise Unsupported(f"{path} has several frames or pages: save the one that is meant as a picture")
    return picture
