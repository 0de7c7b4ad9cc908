"""Pictures that the page offers to try: some of the model's own, and some that are nothing like them."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from prood import data
from prood.data import ImageSet
from prood.detector.inputs import Shape
from prood.errors import ProodError
from prood.serve.pictures import png

INSIDE = 4


OUTSIDE = ("photographs:test", "materials", "text", "faces", "left-out", "smooth", "uniform")


@dataclass(frozen=True)
class Example:
    name: str
    kind: Literal["in", "out"]
    png: bytes


def examples(shape: Shape, inside: str | None) -> list[Example]:
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
    name = trained.removesuffix(":train")
    try:
        if name == trained or "PATH" in data.find(f"{name}:test").splits:
            return []
    except ProodError:
        return []
    images = _first(f"{name}:test", INSIDE)
    if images is None or images.shape != shape:
        return []
    labels = range(INSIDE) if images.labels is None else images.labels.tolist()
    names = [images.classes[label] if images.classes else str(label) for label in labels]
    return list(zip(names, images.images, strict=False))


def _first(name: str, count: int, shape: Shape | None = None) -> ImageSet | None:
    try:
        return data.open_set(name, shape=shape, count=count, seed=1).subset(count, seed=1).load()
    except ProodError:  # not installed, or not on this machine
        return None
