"""Certifying images: a folder, a picture or a set by name, into a file of certificates.

Under torchrun each process takes its share and appends to a file of its own beside the result; at the end they become
one. What such files hold is not made again, so an interrupted call continues.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from prood import data, processes
from prood.atomic import write_text
from prood.bounds import Method, Norm
from prood.certification.record import (
    Certificate,
    ImageReference,
    ModelReference,
    append,
    confidence_of,
    file_sha256,
    image_sha256,
    read,
)
from prood.data import ImageSet, StoredSet
from prood.data.formats.pictures import decode, fit
from prood.errors import ProodError
from prood.models import Discriminator, ProoD, load, model_path, spec_of

Shape = tuple[int, int, int]


Input = tuple[str, int | None, Tensor]
"""Name of a set and row, or path of a picture and None; and the image, float32 in [0, 1]."""


@dataclass(frozen=True)
class Subject:
    """A model that has a certificate, and what its certificates say of it."""

    model: Discriminator | ProoD
    reference: ModelReference
    names: tuple[str, ...] | None = None  # of the classes

    @cached_property
    def classes(self) -> int | None:
        if not isinstance(self.model, ProoD):
            return None
        with torch.no_grad():
            device = next(self.model.parameters()).device
            return self.model.logits(torch.zeros(1, *self.shape, device=device)).shape[1]

    @property
    def discriminator(self) -> Discriminator:
        return self.model.discriminator if isinstance(self.model, ProoD) else self.model

    @property
    def shift(self) -> float:
        return self.model.shift.item() if isinstance(self.model, ProoD) else 0.0

    @property
    def shape(self) -> Shape:
        """Of the images that it takes, as its description says."""
        channels, height, width = spec_of(self.discriminator).get("image", (3, 32, 32))
        return int(channels), int(height), int(width)


def subject(path: Path | str, device: torch.device) -> Subject:
    """The model of a run's folder or file."""
    model, about = load(path, device=device)
    if not isinstance(model, Discriminator | ProoD):
        raise ProodError(f"{path} holds a classifier without a certificate: combine it with a discriminator first")
    reference = ModelReference(str(path), file_sha256(model_path(path)))
    return Subject(model.eval(), reference, None if about.classes is None else tuple(about.classes))


def inputs(names: Sequence[str], shape: Shape, limit: int | None) -> list[Input]:
    """(name, row, float32 image) of pictures, fitted to the shape, and of the rows of image sets."""
    found: list[Input] = []
    like = ImageSet("like", torch.zeros(1, *shape, dtype=torch.uint8))
    for name in names:
        if Path(name).is_file():
            found.append((name, None, fit(decode(Path(name)), shape).float() / 255))
            continue
        images = data.open_set(name, like=like, split="test")
        if images.shape != shape:
            raise ProodError(f"{name} has images of shape {images.shape}, and the model takes {shape}")
        rows = range(len(images) if limit is None else min(limit, len(images)))
        found += [(images.name, row, image) for row, image in zip(rows, _floats(images, rows), strict=True)]
    return found


def _floats(images: ImageSet | StoredSet, rows: range) -> Iterator[Tensor]:
    for start in range(0, len(rows), 256):
        yield from images.take(list(rows[start : start + 256])).float() / 255


def certify(
    what: Subject,
    images: Sequence[Input],
    eps: Sequence[float],
    *,
    out: Path | None = None,
    norm: Norm = "linf",
    method: Method = "best",
    batch: int = 64,
) -> list[Certificate]:
    """Certify each image at each radius, and return the certificates radius by radius.

    With a file `out`, each process makes its share of what is not there yet, and the file holds them all in the end;
    what it held before stays.
    """
    wanted = [
        (radius, ImageReference(name, row, image_sha256(image.numpy())), image)
        for radius in eps
        for name, row, image in images
    ]
    keys = [(reference.sha256, what.reference.sha256, radius, norm, method) for radius, reference, _ in wanted]
    if out is None:
        return [one for group in _made(what, wanted, norm, method, batch) for one in group]
    there = _there(out)
    missing = [one for one, key in zip(wanted, keys, strict=True) if key not in there]
    processes.barrier()  # all have read what is there before one of them writes
    part = out.with_name(f"{out.name}.part{processes.rank()}")
    for group in _made(what, missing[processes.rank() :: processes.world_size()], norm, method, batch):
        for certificate in group:
            append(part, certificate)
    processes.barrier()
    there = _there(out)
    processes.barrier()
    if processes.is_main():
        write_text(out, "".join(f"{one.to_json()}\n" for one in there.values()))
        for file in _parts(out):
            file.unlink()
    return [there[key] for key in keys]


def _made(
    what: Subject, wanted: Sequence[tuple[float, ImageReference, Tensor]], norm: Norm, method: Method, batch: int
) -> Iterator[list[Certificate]]:
    device = next(what.model.parameters()).device
    for start in range(0, len(wanted), batch):
        group = wanted[start : start + batch]
        began = time.perf_counter()
        images = torch.stack([image for _, _, image in group]).to(device)
        radii = torch.tensor([radius for radius, _, _ in group], dtype=torch.float64)
        bounds = what.discriminator.upper_bound(images, radii, method=method, norm=norm).tolist()
        seconds = round((time.perf_counter() - began) / len(group), 6)
        yield [
            _certificate(what, reference, norm, radius, method, bound, seconds)
            for (radius, reference, _), bound in zip(group, bounds, strict=True)
        ]


def _certificate(
    what: Subject, reference: ImageReference, norm: str, eps: float, method: str, bound: float, seconds: float
) -> Certificate:
    confidence = None if what.classes is None else confidence_of(bound, what.shift, what.classes)
    return Certificate(
        reference, what.reference, norm, eps, method, bound, what.shift, what.classes, confidence, seconds
    )


Key = tuple[str, str, float, str, str]


def _there(out: Path) -> dict[Key, Certificate]:
    """The certificates of the result and of what interrupted calls have left beside it."""
    files = [out] if out.is_file() else []
    found = [one for file in [*files, *_parts(out)] for one in read(file)[0]]
    return {(one.input.sha256, one.model.sha256, one.eps, one.norm, one.method): one for one in found}


def _parts(out: Path) -> list[Path]:
    return sorted(out.parent.glob(f"{out.name}.part*"))
