"""Sets of images, and perhaps of labels: in memory as bytes or, where there are too many or too big, on disk."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from prood.data.order import generator
from prood.data.parts import part_rows
from prood.errors import BadValue, Mismatch

Rows = Tensor | Sequence[int]
Shape = tuple[int, int, int]


@dataclass(frozen=True, eq=False, repr=False)
class Choosable:
    """What sets in memory and on disk share: seeded choices of their images."""

    name: str

    def __len__(self) -> int:
        raise NotImplementedError

    def select(self, rows: Rows) -> Self:
        raise NotImplementedError

    def take(self, rows: Rows) -> Tensor:
        raise NotImplementedError

    def prepared(self, *, often: bool = False) -> Self:
        """The set as it is read fastest, if it is read `often`."""
        return self

    def marks(self) -> list[bytes]:
        """A hash of each image's pixels: equal images have equal ones."""
        return [hashlib.sha256(self.take([row]).cpu().numpy().data).digest() for row in range(len(self))]

    def __repr__(self) -> str:
        """Without pixels and labels, which may be millions."""
        shape, classes = getattr(self, "shape", ()), getattr(self, "classes", None)
        named = f", {len(classes)} classes" if classes else ""
        return f"{type(self).__name__}({self.name!r}, {len(self):,} images of shape {tuple(shape)}{named})"

    def subset(self, count: int, seed: int) -> Self:
        """A seeded choice of `count` images without replacement, or the whole set in order if it has no more.

        A smaller choice with the same seed is the beginning of a bigger one.
        """
        if count < 1:
            raise _wrong(self.name, f"cannot give a subset of {count} images: ask for at least 1")
        if count >= len(self):
            return self
        return self.select(torch.randperm(len(self), generator=generator(seed, int.from_bytes(b"subset")))[:count])

    def divided(self, count: int, seed: int) -> tuple[Self, Self]:
        """The set without a seeded choice of `count` images, in its order and under its name; and that choice.

        A smaller choice with the same seed is the beginning of a bigger one. It differs from the choice of `subset`.
        """
        have = len(self)
        if not 1 <= count < have:
            raise _wrong(self.name, f"has {have:,} images and cannot hold back {count:,}: choose 1 to {have - 1:,}")
        held = torch.randperm(have, generator=generator(seed, int.from_bytes(b"held back")))[:count]
        left = torch.ones(have, dtype=torch.bool)
        left[held] = False
        return self.select(left.nonzero()[:, 0]), replace(self.select(held), name=f"{self.name} (held back)")

    def parted(self, shares: Mapping[str, float], seed: int) -> dict[str, Self]:
        """The set in parts, such as `{"training": 0.7, "calibration": 0.15, "test": 0.15}`, by a seeded choice.

        Each part has its share of each class where there are labels, and keeps the set's order. Images whose pixels are
        equal are all in the same part. For this all images are read once.
        """
        if not shares or min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-6:
            raise BadValue(f"the shares {dict(shares)} must be above 0 and add up to 1")
        images = self.prepared()
        random = torch.randperm(len(images), generator=generator(seed, int.from_bytes(b"parts"))).tolist()
        labels: Tensor | None = getattr(images, "labels", None)
        numbers = None if labels is None else labels.tolist()
        rows = part_rows(images.marks(), numbers, tuple(shares.values()), random)
        parts = dict(zip(shares, rows, strict=True))
        if empty := [name for name, own in parts.items() if not own]:
            fault = f"has {len(self)} images, too few for {len(shares)} parts: {' and '.join(empty)} would be empty"
            raise _wrong(self.name, f"{fault}; take more images, or fewer parts")
        return {part: replace(images.select(own), name=f"{self.name} ({part})") for part, own in parts.items()}

    def _index(self, rows: Rows, device: torch.device | None = None) -> Tensor:
        index = torch.as_tensor(rows, device=device)
        # An empty list has no type of its own; the ImageSet it leads to is refused anyway.
        if index.numel() == 0:
            return index.to(torch.int64).reshape(-1)
        # A mask would pass for rows 0 and 1, and a negative row would quietly count from the end.
        if index.dtype == torch.bool or index.is_floating_point() or index.ndim != 1:
            raise _wrong(self.name, f"takes rows as a list of integers, not {index.dtype} of shape {_text(index)}")
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= len(self):
            raise _wrong(self.name, f"has no row {low if low < 0 else high}: its rows are 0 to {len(self) - 1}")
        return index.to(torch.int64)


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet(Choosable):
    """Images of one size: uint8 NCHW, labels int64 (N,) or None, and the names of the classes where they have any.

    Bytes and not floats: a quarter of the memory, and exactly what the file held. `floats` gives what a network
    takes. Sets from `load` are shared, so nobody writes into them.
    """

    images: Tensor
    labels: Tensor | None = None
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        images, labels, classes = self.images, self.labels, self.classes
        if not isinstance(images, Tensor) or images.dtype != torch.uint8:
            kind = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise _wrong(self.name, f"has images of type {kind}: give a torch.uint8 tensor with values 0 to 255")
        if images.ndim != 4 or images.numel() == 0:
            raise _wrong(self.name, f"has images of shape {_text(images)}: give a non-empty (N, C, H, W)")
        check_labels(self.name, len(images), labels, classes)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> Shape:
        """(C, H, W) of one image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def select(self, rows: Rows) -> Self:
        """The set of these rows, in this order; a row may come twice."""
        index = self._index(rows, self.images.device)
        labels = None if self.labels is None else self.labels[index]
        return replace(self, images=self.images[index], labels=labels)

    def take(self, rows: Rows) -> Tensor:
        """The images of these rows: uint8 (N, C, H, W)."""
        return self.images[self._index(rows, self.images.device)]

    def load(self) -> Self:
        """Itself: it is in memory already, unlike a `StoredSet`."""
        return self

    def floats(self, rows: Rows | None = None) -> Tensor:
        """The images, or these rows of them, as float32 in [0, 1]."""
        return (self.images if rows is None else self.take(rows)).to(torch.float32) / 255

    def numbered_as(self, classes: Sequence[str] | None) -> Self:
        """With labels that count these classes, by name. Where one side has no names, or none in common, as it is."""
        if self.labels is None or self.classes is None or classes is None or self.classes == tuple(classes):
            return self
        places = {name: place for place, name in enumerate(classes)}
        if not any(name in places for name in self.classes):
            return self
        present = [self.classes[label] for label in sorted(set(self.labels.tolist()))]
        if unknown := [name for name in present if name not in places]:
            fault = f"has classes that the model does not know ({', '.join(unknown[:3])})"
            raise Mismatch(f"the image set '{self.name}' {fault}: leave them out, or name them as the model does")
        numbers = torch.tensor([places.get(name, -1) for name in self.classes], device=self.labels.device)
        return replace(self, labels=numbers[self.labels], classes=tuple(classes))

    def labels_of(self, classes: int) -> Tensor | None:
        """The labels, on the CPU, for a model with `count` classes: a label beyond them is refused."""
        if self.labels is None:
            return None
        highest = int(self.labels.max())
        if highest >= classes:
            fault = f"has the label {highest}, but the model has {classes} classes, counted from 0"
            raise Mismatch(f"the image set '{self.name}' {fault}: leave them out, or number them as the model does")
        return self.labels.cpu()

    def fingerprint(self) -> str:
        """16 hex digits of sha256 over the images and labels; a run records it to say which data it used.

        The name does not count: the same images under another name are the same data.
        """
        return fingerprint(self.images, self.labels)


def fingerprint(*parts: object) -> str:
    """16 hex digits of sha256 over tensors, with their types and shapes, and other things as they print."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(part.detach().cpu().contiguous().numpy().data)
        elif part is not None:
            digest.update(f"{part}\n".encode())
    return digest.hexdigest()[:16]


def check_labels(name: str, count: int, labels: Tensor | None, classes: tuple[str, ...] | None) -> None:
    if labels is None:
        return
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise _wrong(name, f"has labels of type {kind}: give a torch.int64 tensor or None")
    if labels.shape != (count,):
        raise _wrong(name, f"has {count} images and labels of shape {_text(labels)}: give one label an image")
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise _wrong(name, f"has the label {low}: labels count from 0")
    if classes is not None and high >= len(classes):
        raise _wrong(name, f"has the label {high} but names {len(classes)} classes: name them all")


def channels_last(shape: Sequence[int]) -> str:
    """What to do about images whose channels stand last, to end a message with; nothing about others."""
    last = len(shape) == 3 and shape[0] not in (1, 3) and shape[2] in (1, 3)
    return ": the channels stand last, so move them: moveaxis(images, -1, -3)" if last else ""


def _wrong(name: str, what: str) -> BadValue:
    return BadValue(f"the image set '{name}' {what}")


def _text(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
