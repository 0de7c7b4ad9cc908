"""Images by name, as commands take them: pictures by path, folders of pictures, and image sets."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from prood.data import Images, open_set
from prood.data.formats.folder import find_pictures
from prood.data.formats.pictures import decode, fit, has_frames
from prood.data.images import Shape
from prood.errors import Mismatch, UnknownName, Unsupported


@dataclass(frozen=True)
class Inputs:
    """Images by place: pictures and the rows of image sets. They are read when needed.

    A picture of another size than the model's is fitted: the largest rectangle of the model's aspect around its centre,
    resized with a bilinear filter. A certificate is about the pixels that come out, and so is its hash.
    """

    names: tuple[tuple[str, int | None], ...]  # name of a set and row, or path of a picture and None
    sets: Mapping[str, Images]
    shape: Shape

    def __len__(self) -> int:
        return len(self.names)

    def name(self, place: int) -> str:
        """A picture's path, or a set's name with the row: digits:test[3]."""
        name, row = self.names[place]
        return name if row is None else f"{name}[{row}]"

    def read(self, places: Sequence[int]) -> Tensor:
        """float32 in [0, 1], (N, C, H, W)."""
        images = [
            fit(_still(Path(name)), self.shape) if row is None else self.sets[name].take([row])[0]
            for name, row in (self.names[place] for place in places)
        ]
        return torch.stack(images).float() / 255


def inputs(names: Sequence[str], shape: Shape, limit: int | None) -> Inputs:
    """Pictures by path; of folders of pictures, and of image sets by name, the first `limit` images."""
    found: list[tuple[str, int | None]] = []
    sets: dict[str, Images] = {}
    for name in names:
        if Path(name).is_file():
            found.append((name, None))
            continue
        try:
            images = open_set(name, shape=shape, split="test")
        except UnknownName:
            if not Path(name).is_dir():
                raise
            found += [(str(Path(name, file)), None) for file in list(find_pictures(Path(name)))[:limit]]
            continue
        if images.shape != shape:
            raise Mismatch(f"{name} has images of shape {images.shape}, and the model takes {shape}")
        sets[images.name] = images
        found += [(images.name, row) for row in range(len(images))[:limit]]
    return Inputs(tuple(found), sets, shape)


def _still(path: Path) -> Image.Image:
    """A picture of one frame: what is said about a file with several would seem to be about all of them."""
    picture = decode(path)  # a damaged one is refused there
    several = True  # a second frame that is damaged is one, too
    with warnings.catch_warnings(action="ignore"), Image.open(path) as opened, suppress(Exception):
        several = has_frames(opened)
    if several:
        raise Unsupported(f"{path} has several frames or pages: save one of them as a picture")
    return picture
