"""Grey patches of the photographs that ship inside scikit-image and scikit-learn: out-distributions for digits.

A patch is a square of random side at a random place, shrunk to 28×28. The filter that shrinks it is drawn for each
patch, because a single one gives a data set away: its trace, and not its content, is what a discriminator learns.
No photograph lends patches to two splits.
"""

import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prood.data.bundled import bundled
from prood.data.formats.pictures import MIXED
from prood.data.images import ImageSet
from prood.data.order import generator
from prood.data.sources import source
from prood.errors import Damaged

_SIDE = 28
_LARGEST = 112
_SEED = 0
# The first 100 of the 200 images in lfw_subset.npy are faces; the rest are bits of background.
_FACES = 100

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
_COUNTS = {"train": 8000, "validation": 1000, "test": 1000}
_MATERIALS = ("brick.png", "grass.png", "gravel.png")
_TEXT = ("page.png", "text.png")
_FROM_SKLEARN = ("china.jpg", "flower.jpg")


@source(
    "photographs",
    description="grey 28×28 patches of photographs (scikit-image, scikit-learn)",
    splits=tuple(_PHOTOGRAPHS),
)
def photographs(split: str) -> ImageSet:
    """The training out-distribution, and two smaller sets from other photographs."""
    return ImageSet(f"photographs:{split}", _patches(_PHOTOGRAPHS[split], _COUNTS[split]))


@source("materials", description="patches of brick, grass and gravel (scikit-image)", splits=("test",))
def materials(split: str) -> ImageSet:
    return ImageSet(f"materials:{split}", _patches(_MATERIALS, 1000))


@source("text", description="patches of a printed and a handwritten page (scikit-image)", splits=("test",))
def text(split: str) -> ImageSet:
    return ImageSet(f"text:{split}", _patches(_TEXT, 1000))


@source("faces", description="100 faces (Labeled Faces in the Wild, from scikit-image)", splits=("test",))
def faces(split: str) -> ImageSet:
    path = bundled("skimage", "data", "lfw_subset.npy")
    try:
        pixels = np.load(path, allow_pickle=False)[:_FACES]
        grey = [Image.fromarray(face) for face in np.rint(pixels * 255).astype(np.uint8)]
    # What a broken file raises inside NumPy's header parser is not one type.
    except Exception as error:
        raise Damaged(f"cannot read the faces in {path}: reinstall scikit-image ({type(error).__name__})") from error
    draws = torch.rand(len(grey), generator=generator(_SEED)).tolist()
    return ImageSet(
        f"faces:{split}",
        torch.stack([_resize(face, (0, 0, *face.size), _filter(u)) for face, u in zip(grey, draws, strict=True)]),
    )


def _patches(files: tuple[str, ...], count: int) -> Tensor:
    """`count` patches, (N, 1, 28, 28), taken from the photographs in turn so that each lends as many."""
    grey = [_read(bundled(*_place(file))) for file in files]
    random = generator(_SEED)
    return torch.stack([_patch(grey[i % len(grey)], random) for i in range(count)])


def _place(file: str) -> tuple[str, ...]:
    return ("sklearn", "datasets", "images", file) if file in _FROM_SKLEARN else ("skimage", "data", file)


def _read(path: Path) -> Image.Image:
    try:
        with Image.open(path) as photograph:
            return photograph.convert("L")
    except (OSError, SyntaxError) as error:
        raise Damaged(f"cannot read the photograph {path}: reinstall its package ({type(error).__name__})") from error


def _patch(photograph: Image.Image, random: torch.Generator) -> Tensor:
    width, height = photograph.size
    while True:
        a, b, c, d = torch.rand(4, generator=random, dtype=torch.float64).tolist()
        side = _SIDE + math.floor(a * (min(_LARGEST, width, height) - _SIDE + 1))
        left, top = math.floor(b * (width - side + 1)), math.floor(c * (height - side + 1))
        patch = _resize(photograph, (left, top, left + side, top + side), _filter(d))
        # The black around the retina or a clear sky says nothing.
        if patch.min() != patch.max():
            return patch


def _filter(u: float) -> Image.Resampling:
    return MIXED[math.floor(u * len(MIXED))]


def _resize(image: Image.Image, box: tuple[int, int, int, int], how: Image.Resampling) -> Tensor:
    """The square `box` of a grey image as (1, 28, 28)."""
    return torch.from_numpy(np.array(image.resize((_SIDE, _SIDE), how, box=box)))[None]
