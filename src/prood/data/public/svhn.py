"""Street View House Numbers, the cropped digits.

Netzer et al., Reading digits in natural images with unsupervised feature learning, 2011.
"""

from pathlib import Path

import numpy as np
import torch

from prood.data.formats.matlab import read_mat
from prood.data.images import ImageSet
from prood.data.public.known import known
from prood.data.sources import Shape
from prood.errors import Damaged

_AGAIN = "fetch it again with 'prood data fetch svhn --again'"


@known("svhn")
def svhn(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    """`X` holds the images as (row, column, colour, image), `y` their digits, where 10 means 0."""
    path = folder / f"{split}_32x32.mat"
    content = read_mat(path, "X", "y")
    pixels, digits = content["X"], content["y"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3) or pixels.shape[3] == 0:
        raise Damaged(f"{path} holds images of type {pixels.dtype} and shape {pixels.shape}: {_AGAIN}")
    if digits.size != pixels.shape[3]:
        raise Damaged(f"{path} holds {digits.size} labels for {pixels.shape[3]} images: {_AGAIN}")
    if digits.dtype.kind not in "iuf" or not np.isin(digits, range(1, 11)).all():
        raise Damaged(f"{path} holds labels that are not 1 to 10: {_AGAIN}")
    images = np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))
    labels = digits.ravel().astype(np.int64) % 10
    return ImageSet(f"svhn:{split}", torch.from_numpy(images), torch.from_numpy(labels), tuple("0123456789"))
