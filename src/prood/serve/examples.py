"""Pictures to try: some of the model's own image set, if that is on this machine, and some that are none of it."""

import base64
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from prood import data
from prood.data import ImageSet
from prood.detector.inputs import Shape
from prood.errors import ProodError

INSIDE = 4
OUTSIDE = ("photographs:test", "materials", "text", "faces", "left-out", "smooth", "uniform")


@dataclass(frozen=True)
class Example:
    name: str
    kind: Literal["in", "out"]
    png: bytes


def draw(shape: Shape, inside: str | None) -> list[Example]:
    """Examples of this shape; `inside` names the model's in-distribution."""
    if shape[0] not in (1, 3):
        return []
    trained = inside or ""
    found = [Example(name, "in", png(image)) for name, image in _inside(trained, shape)]
    for name in OUTSIDE:
        if name == "left-out" and not trained.startswith("digits"):
            continue
        images = _first(name, 1, shape)
        if images is not None and images.shape == shape:
            found.append(Example(name.partition(":")[0], "out", png(images.images[0])))
    return found


def _inside(trained: str, shape: Shape) -> list[tuple[str, Tensor]]:
    """The first test images. Only sets by name: a model's file may name no path on this machine."""
    name = trained.removesuffix(":train") + ":test" if trained.endswith(":train") else ""
    try:
        if not name or "PATH" in data.find(name).splits:
            return []
    except ProodError:
        return []
    images = _first(name, INSIDE)
    if images is None or images.shape != shape:
        return []
    labels = range(INSIDE) if images.labels is None else images.labels.tolist()
    names = [images.classes[label] if images.classes else str(label) for label in labels]
    return list(zip(names, images.images, strict=False))


def _first(name: str, count: int, shape: Shape | None = None) -> ImageSet | None:
    try:
        found = data.open_set(name, shape=shape, count=count, seed=1)
        return found.subset(min(count, len(found)), seed=1).load()
    except ProodError:  # not installed, or not on this machine
        return None


def png(pixels: Tensor) -> bytes:
    """A PNG of bytes (C, H, W), or of numbers in [0, 1], rounded."""
    if pixels.is_floating_point():
        pixels = (pixels.clamp(0, 1) * 255).round().to(torch.uint8)
    array = pixels.cpu().numpy()
    image = Image.fromarray(array[0] if len(array) == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def data_url(pixels: Tensor) -> str:
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")
