"""The image that a certificate names."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prood.certification.record import ImageReference
from prood.certification.verify.exact import Refuted
from prood.certification.verify.layers import Shape
from prood.data import Images, open_set
from prood.data.formats.pictures import decode, fit


class ImageReader:
    """Reads from the last set that was opened as long as that is the one; a new reader opens it anew."""

    def __init__(self) -> None:
        self._opened: tuple[str, Shape, Images] | None = None

    def read(self, reference: ImageReference, name: str | None, shape: Shape) -> NDArray[np.float32]:
        """float32 (C, H, W) in [0, 1], from `name` if that is given; noise and photographs are made to fit `shape`.

        In a folder `name`, a picture is looked for under its own name.
        """
        name = reference.name if name is None else name
        channels, height, width = shape
        if reference.row is None:
            path = Path(name) / Path(reference.name).name if Path(name).is_dir() else Path(name)
            found = fit(decode(path), (channels, height, width)).numpy()
        else:
            images = self._open(name, shape)
            if reference.row >= len(images):
                raise Refuted(f"{images.name} has no row {reference.row}: its rows are 0 to {len(images) - 1}")
            found = images.take([reference.row])[0].numpy()
        return found.astype(np.float32) / np.float32(255)

    def _open(self, name: str, shape: Shape) -> Images:
        if self._opened is None or self._opened[:2] != (name, shape):
            channels, height, width = shape
            self._opened = name, shape, open_set(name, shape=(channels, height, width))
        return self._opened[2]
