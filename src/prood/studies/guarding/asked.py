"""What a user asks `prood guard` for, and a look at what there is: the classifier, the folders, their sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import torch

from prood import data
from prood.data import Images
from prood.data.formats.pictures import Unreadable, own_shape
from prood.data.images import Shape
from prood.data.stored import Damage
from prood.errors import BadValue, Mismatch, UnknownName
from prood.models import WrapOptions, open_classifier
from prood.models.wrapped import read_classes
from prood.studies.thresholds import Asked as Point

LOOKED_AT = 16  # pictures of a folder, to tell how large they are
LARGEST = 64
"""Side of the images of a classifier that is trained here: larger ones take too long without a GPU."""


@dataclass(frozen=True)
class Asked:
    """What is guarded, with what; of the rest, what is None is chosen."""

    inside: str
    outside: str | None = None
    classifier: str | None = None
    options: WrapOptions = field(default_factory=WrapOptions)
    classes: str | None = None
    eps: float | None = None
    size: str | None = None
    epochs: float | None = None
    accept: float | None = None
    provable: str | None = None
    minutes: float | None = None
    seed: int | None = None
    damaged: Damage | None = None

    def __post_init__(self) -> None:
        if self.inside and self.inside == self.outside:
            raise BadValue(f"{self.inside} is inside and outside: name images of other things with --outside")
        if self.eps is not None and not 0 < self.eps <= 1:
            raise BadValue(f"eps is a radius above 0 and at most 1, not {self.eps}: 0.01 is 2.55 grey levels")
        if self.epochs is not None and not self.epochs > 0:
            raise BadValue(f"epochs must be above 0, not {self.epochs}")
        Point(provable=self.provable).fitted  # noqa: B018  # or it is refused
        for name in ("image", "resize", "interpolation"):
            if getattr(self.options, name) is not None:
                fault = f"a guard has no option {name!r}: the images of the guarded model are options.joint_image"
                raise BadValue(f"{fault}, and they are resized as the classifier says")


@dataclass(frozen=True, eq=False)
class Found:
    """The sets at the size that the guarded classifier takes, and the classifier's own classes if they are known."""

    inside: Images
    outside: Images | None
    image: Shape
    classes: tuple[str, ...] | None

    def __str__(self) -> str:
        named = f"{self.count} classes" if self.count else "no labels"
        if not self.count and (beside := _beside_folders(self.inside)):
            named = f"no labels, as {beside} lies beside the folders"
        outside = "outliers that are made" if self.outside is None else f"{len(self.outside):,} {self.outside.name}"
        skipped = [line for images in (self.inside, self.outside) for line in getattr(images, "skipped", ())]
        few = f"; left out, as they cannot be read, are {', '.join(skipped[:3])}" if skipped else ""
        more = f" and {len(skipped) - 3:,} more" if len(skipped) > 3 else ""
        return f"{len(self.inside):,} {self.inside.name} ({named}) against {outside}{few}{more}"

    @property
    def count(self) -> int:
        """Classes that the folder inside has."""
        return 0 if self.inside.labels is None else len(torch.unique(self.inside.labels))


def look(asked: Asked) -> Found:
    """Open everything once; what cannot work is refused now."""
    first = data.open_set(asked.inside, split="train")
    own = _typical(first)
    classes = None
    if asked.classifier is None:
        _check_classes(first)
        image = asked.options.joint_image or _trained_here(own)
    else:
        image, classes = _classifiers(asked, own)
    return sets(asked, image, classes)


def sets(asked: Asked, image: Shape, classes: tuple[str, ...] | None = None) -> Found:
    """The sets at this size."""
    inside, outside = (_fitted(name, image, asked.damaged or "refuse") for name in (asked.inside, asked.outside))
    assert inside is not None
    return Found(inside, outside, image, classes)


def options_of(asked: Asked) -> WrapOptions:
    """With the names of the classes, from their file."""
    names = None if asked.classes is None else read_classes(Path(asked.classes))
    return replace(asked.options, classes=names)


def set_name(text: str) -> str:
    """A folder or a file may be given as a path; all else is the name of an image set."""
    path = Path(text).expanduser()
    if path.is_dir():
        return f"folder:{text}"
    if path.suffix in (".npz", ".csv") and path.is_file():
        return f"{path.suffix[1:]}:{text}"
    if not text.partition(":")[1] and ("/" in text or "\\" in text):
        raise UnknownName(f"there is no folder {text}: check its path")
    return text


def _classifiers(asked: Asked, own: Shape) -> tuple[Shape, tuple[str, ...] | None]:
    """The images that the joint model takes for this classifier: what its own preprocessing begins with."""
    assert asked.classifier is not None
    options = options_of(asked)
    wrapped, classes = open_classifier(asked.classifier, own, options=options)
    wanted = wrapped.facts.preprocessing
    image = options.joint_image or (wanted.image[0], *wanted.uncut)
    if image != own:
        open_classifier(asked.classifier, image, options=options)  # or it is refused
    return image, classes


def _trained_here(own: Shape) -> Shape:
    """Square images, of 32 pixels or, where the pictures are larger, of 64."""
    side = min(own[1:])
    if own[1] == own[2] and side <= LARGEST // 2:
        return own
    side = LARGEST if side > LARGEST // 2 else LARGEST // 2
    return own[0], side, side


def _check_classes(inside: Images) -> None:
    advice = "put the pictures of each class into a folder of its own, or name a classifier"
    if inside.labels is None:
        if beside := _beside_folders(inside):
            advice = f"{beside} lies beside the folders of the classes: move it away, or name a classifier"
        raise BadValue(f"{inside.name} has no labels to train a classifier by: {advice}")
    if len(torch.unique(inside.labels)) < 2:
        raise BadValue(f"{inside.name} has one class, and a classifier tells two or more apart: {advice}")


def _beside_folders(images: Images) -> str | None:
    """The first picture beside folders of pictures; it means that the folders are not classes."""
    pictures = getattr(getattr(images, "reader", None), "pictures", None)
    if pictures is None or not images.name.startswith("folder:"):
        return None
    titles = [pictures.title(row) for row in range(len(pictures))]
    beside = [title for title in titles if "/" not in title]
    return beside[0] if 0 < len(beside) < len(titles) else None


def _typical(images: Images) -> Shape:
    """The shape of the pictures, of a few if they are files of any size; damaged ones do not count."""
    pictures = getattr(getattr(images, "reader", None), "pictures", None)
    if pictures is None:
        return images.shape
    shapes = []
    for row in range(0, len(pictures), math.ceil(len(pictures) / LOOKED_AT)):
        with suppress(Unreadable):
            shapes.append(own_shape(pictures.picture(row)))
    if not shapes:
        return images.shape
    channels = max(shape[0] for shape in shapes)
    height, width = (round(median(shape[axis] for shape in shapes)) for axis in (1, 2))
    return channels, height, width


def _fitted(name: str | None, image: Sequence[int], damaged: Damage) -> Images | None:
    if name is None:
        return None
    shape = (image[0], image[1], image[2])
    found = data.open_set(name, shape=shape, split="train", damaged=damaged)
    if found.shape != shape:
        have, take = ("×".join(map(str, sides)) for sides in (found.shape, shape))
        fault = f"{found.name} has images of {have}, and the guarded classifier takes {take}"
        raise Mismatch(f"{fault}: give a folder of pictures, which are fitted, or say --image {have.replace('×', 'x')}")
    return found
