"""Street View House Numbers, the cropped digits; and the variables of a MATLAB file, which they come in."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prood.data.images import ImageSet
from prood.data.public.known import AGAIN, known
from prood.data.sources import Shape
from prood.errors import Damaged, NotFound
from prood.extras import require_packages


@known("svhn")
def svhn(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    """`X` holds the images as (row, column, colour, image), `y` their digits, where 10 means 0."""
    path = folder / f"{split}_32x32.mat"
    content = read_mat(path, "X", "y")
    pixels, digits = content["X"], content["y"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3) or pixels.shape[3] == 0:
        raise Damaged(f"{path} holds images of type {pixels.dtype} and shape {pixels.shape}: {AGAIN}")
    if digits.size != pixels.shape[3]:
        raise Damaged(f"{path} holds {digits.size} labels for {pixels.shape[3]} images: {AGAIN}")
    if digits.dtype.kind not in "iuf" or not np.isin(digits, range(1, 11)).all():
        raise Damaged(f"{path} holds labels that are not 1 to 10: {AGAIN}")
    images = np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))
    labels = digits.ravel().astype(np.int64) % 10
    return ImageSet(f"svhn:{split}", torch.from_numpy(images), torch.from_numpy(labels), tuple("0123456789"))


def read_mat(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """These variables of the file, each as MATLAB has it: at least two axes, a struct as a structured array."""
    require_packages("data", "scipy", what=f"reading {path}")
    from scipy.io import loadmat

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # Of a damaged variable SciPy warns, and then puts a text in its place, which is refused below.
            warnings.simplefilter("ignore")
            found = loadmat(file, variable_names=list(names))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFound(f"there is no file {path}: {AGAIN}") from error
    # A foreign or truncated file can fail anywhere inside zlib or SciPy's parser, in a dozen ways.
    except Exception as error:
        raise Damaged(f"cannot read {path} as a MATLAB file ({type(error).__name__}): {AGAIN}") from error
    for name in names:
        if not isinstance(found.get(name), np.ndarray):
            raise Damaged(f"{path} has no readable variable '{name}': {AGAIN}")
    return {name: found[name] for name in names}
