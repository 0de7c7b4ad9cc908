"""Arrays in files: `npz:PATH`, images of the user's own in a NumPy archive, and the variables of a MATLAB file."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prood.data.catalog import AGAIN
from prood.data.images import ImageSet, Shape
from prood.data.sources import file_source
from prood.errors import Damaged, NotFound, ProodError
from prood.extras import require_packages
from prood.reading import check_sizes


@file_source("npz", description="your own: a NumPy archive with `images` (uint8) and perhaps `labels`")
def read_npz(path: Path, shape: Shape | None = None) -> ImageSet:
    """An archive with `images`, uint8 as NHW, NHWC or NCHW, and optionally `labels`, integers (N,) or (N, 1).

    `classes`, where there is such an array of text, are the names of the labels.
    """
    try:
        # Opened here, because NumPy leaves a file open that turns out to be no archive.
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise IsADirectoryError
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            check_sizes(archive.zip, path, path.stat().st_size)
            images = archive["images"]
            labels, classes = archive.get("labels"), archive.get("classes")
        # A member that is not an array is returned as its bytes.
        if not all(isinstance(part, np.ndarray) for part in (images, labels, classes) if part is not None):
            raise TypeError
    except (FileNotFoundError, IsADirectoryError) as error:
        raise NotFound(f"there is no file {path}: give the path of an .npz archive") from error
    except ProodError:
        raise
    # A foreign or truncated file can fail anywhere inside zip, zlib or NumPy's header parser, in a dozen ways.
    except Exception as error:
        hint = "write it with numpy.savez(path, images=..., labels=...)"
        raise Damaged(f"cannot read images from {path} ({type(error).__name__}): {hint}") from error
    tensor = torch.from_numpy(_to_nchw(images, path))
    numbers = None if labels is None else torch.from_numpy(_to_labels(labels, path))
    return ImageSet(f"npz:{path}", tensor, numbers, None if classes is None else _to_names(classes, path))


def _to_nchw(images: NDArray[np.generic], path: Path) -> NDArray[np.uint8]:
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        found = f"images of type {images.dtype} and shape {images.shape}"
        raise Damaged(f"{path} holds {found}: store uint8 as (N, H, W), (N, H, W, C) or (N, C, H, W)")
    if images.ndim == 3:
        images = images[:, None]
    else:
        first, last = (images.shape[axis] in (1, 3) for axis in (1, 3))
        # Guessing wrong would turn images into stripes without a word.
        if first == last:
            fault = "either first or last" if first else "neither first nor last"
            found = f"images of shape {images.shape}, where 1 or 3 channels could stand {fault}"
            raise Damaged(f"{path} holds {found}: store grey images as (N, H, W), others as (N, H, W, 3)")
        if last:
            images = images.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(images, dtype=np.uint8)


def _to_labels(labels: NDArray[np.generic], path: Path) -> NDArray[np.int64]:
    if labels.dtype.kind not in "iu":
        raise Damaged(f"{path} holds labels of type {labels.dtype}: store integers that count from 0")
    # A column of labels is what some public archives hold; any other shape is refused by ImageSet.
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    return np.ascontiguousarray(labels, dtype=np.int64)


def _to_names(classes: NDArray[np.generic], path: Path) -> tuple[str, ...]:
    if classes.dtype.kind != "U" or classes.ndim != 1:
        found = f"classes of type {classes.dtype} and shape {classes.shape}"
        raise Damaged(f"{path} holds {found}: store an array of text, one name for each class")
    return tuple(map(str, classes))


def read_mat(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """These variables of the file, each as MATLAB has it: at least two axes, a struct as a structured array."""
    require_packages("data", "scipy", what=f"reading {path}")
    from scipy.io import loadmat

    try:
        if path.exists() and not path.is_file():
            raise IsADirectoryError
        with path.open("rb") as file, warnings.catch_warnings():
            # SciPy warns about a damaged variable and returns a text instead, which is refused below.
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
