"""Pictures that the page offers to try: some of the model's own, and some that are nothing like them."""

from dataclasses import dataclass

from torch import Tensor

from prood import data
from prood.data import ImageSet
from prood.detector.inputs import Shape
from prood.errors import ProodError
from prood.serve.gallery import Gallery, Kind
from prood.serve.pictures import png

INSIDE = 4
OUTSIDE = ("photographs:test", "materials", "text", "faces", "left-out", "smooth", "uniform")
CALIBRATING = 256
"""Images of the model's own kind, for the threshold of its classifier alone."""


@dataclass(frozen=True)
class Example:
    """`how` says where it comes from and how it was picked."""

    name: str
    kind: Kind
    png: bytes
    how: str


def examples(shape: Shape, inside: str | None, gallery: Gallery | None = None) -> list[Example]:
    """Examples of this shape; `inside` names the model's in-distribution. Its own images are shown where they are on
    this machine, in place of the gallery's."""
    gallery = gallery or Gallery()
    found = _inside(inside, shape) if shape[0] in (1, 3) else []
    listed = [Example(one.name, one.kind, one.png, gallery.how.get(one.kind, "")) for one in gallery.pictures]
    found += [one for one in listed if one.kind == "out" or not found]
    return found if shape[0] not in (1, 3) or listed else found + _outside(inside, shape)


def own_kind(shape: Shape, inside: str | None) -> Tensor | None:
    """Images of the model's own kind that it was not trained on, float32 in [0, 1]; None where they are not here."""
    for split in ("validation", "test"):
        images = _own(inside, split, CALIBRATING)
        if images is not None and images.shape == shape and len(images) == CALIBRATING:
            return images.images.float() / 255
    return None


def _inside(inside: str | None, shape: Shape) -> list[Example]:
    images = _own(inside, "test", INSIDE)
    if images is None or images.shape != shape:
        return []
    labels = range(INSIDE) if images.labels is None else images.labels.tolist()
    names = [images.classes[label] if images.classes else str(label) for label in labels]
    how = f"{INSIDE} test images of {images.name.partition(':')[0]}, drawn with a fixed seed."
    return [Example(name, "in", png(image), how) for name, image in zip(names, images.images, strict=False)]


def _outside(inside: str | None, shape: Shape) -> list[Example]:
    found = []
    for name in OUTSIDE:
        if name == "left-out" and not (inside or "").startswith("digits"):
            continue
        images = _first(name, 1, shape)
        if images is not None and images.shape == shape:
            how = "One each of sets that it was not trained on, drawn with a fixed seed."
            found.append(Example(name.partition(":")[0], "out", png(images.images[0]), how))
    return found


def _own(inside: str | None, split: str, count: int) -> ImageSet | None:
    """Images of the in-distribution. Only sets by name: a model's file may name no path on this machine."""
    name = (inside or "").removesuffix(":train")
    try:
        if name == (inside or "") or "PATH" in data.find(f"{name}:{split}").splits:
            return None
    except ProodError:
        return None
    return _first(f"{name}:{split}", count)


def _first(name: str, count: int, shape: Shape | None = None) -> ImageSet | None:
    try:
        return data.open_set(name, shape=shape, count=count, seed=1).subset(count, seed=1).load()
    except ProodError:  # not installed, or not on this machine
        return None
