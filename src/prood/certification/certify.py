"""Certifying images: a folder, a picture or a set by name, into a file of certificates.

Under torchrun each process takes its share and appends to a file of its own beside the result; at the end they become
one. What such files hold is not made again, so an interrupted call continues.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from prood import processes
from prood.atomic import check, locked, write_text
from prood.bounds import Method, Norm
from prood.certification.inputs import Inputs, Shape
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
from prood.errors import ProodError
from prood.models import Discriminator, ProoD, load, model_path, spec_of

Key = tuple[ImageReference, str, float, str, str]
"""Image, model, radius, norm and method: what makes a certificate the one that is asked for."""


@dataclass(frozen=True)
class Subject:
    """A model that has a certificate, and what its certificates say of it."""

    model: Discriminator | ProoD
    reference: ModelReference
    names: tuple[str, ...] | None = None  # of the classes
    threshold: float | None = None  # its own, if its file states one

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

    def of_g(self, threshold: float | None) -> float | None:
        """What a threshold of this model, a joint one's confidence, means for g."""
        if threshold is None or not isinstance(self.model, ProoD):
            return threshold
        assert self.classes is not None
        return self.model.threshold_of_g(threshold, self.classes)

    @property
    def shape(self) -> Shape:
        """Of the images that it takes, as its description says."""
        channels, height, width = spec_of(self.discriminator).get("image", (3, 32, 32))
        return int(channels), int(height), int(width)


def subject(path: Path | str, device: torch.device) -> Subject:
    """The model of a run's folder or file, or a shipped one by name."""
    model, about = load(path, device=device)
    if not isinstance(model, Discriminator | ProoD):
        raise ProodError(f"{path} holds a classifier without a certificate: combine it with a discriminator first")
    reference = ModelReference(str(path), file_sha256(model_path(path)))
    names = None if about.classes is None else tuple(about.classes)
    return Subject(model.eval(), reference, names, about.threshold)


def certify(
    what: Subject,
    images: Inputs,
    eps: Sequence[float],
    *,
    out: Path | None = None,
    norm: Norm = "linf",
    method: Method = "best",
    threshold: float | None = None,
    batch: int = 64,
) -> list[Certificate]:
    """Certify each image at each radius, and return the certificates radius by radius.

    With a file `out`, each process makes its share of what is not there yet, and the file holds them all in the end;
    what it held before stays, and so does what another call writes there meanwhile. The method "auto" stops where
    the verdict at `threshold` is known.
    """
    if method == "auto" and out is not None:
        raise ProodError("bounds by auto are for one threshold: choose alpha-crown, crown or bab for a file of them")
    work = _Work(what, images, norm, method, batch, what.of_g(threshold) if method == "auto" else None)
    places = range(len(images))
    if out is None:
        return [one for radius in eps for group in work.made(places, radius, {}) for one in group]
    check(out)
    with locked(out):
        there = _there(out)
    processes.barrier()  # all have read what is there before one of them writes
    part = out.with_name(f"{out.name}.part{processes.rank()}")
    for radius in eps:
        for group in work.made(places[processes.rank() :: processes.world_size()], radius, there):
            for certificate in group:
                if math.isfinite(certificate.bound):  # else there is nothing to certify
                    with locked(out):
                        append(part, certificate)
    processes.barrier()
    if processes.is_main():
        with locked(out):  # another call may be at the same file
            write_text(out, "".join(f"{one.to_json()}\n" for one in _there(out).values()))
            for file in _parts(out):
                file.unlink()
    processes.barrier()
    with locked(out):
        there = _there(out)
    for radius in eps:  # what has no bound is not in the file, but an answer
        left = [place for place, key in zip(places, work.keys(places, radius), strict=True) if key not in there]
        there |= {_key(one): one for group in work.made(left, radius, there) for one in group}
    return [there[key] for radius in eps for key in work.keys(places, radius)]


@dataclass(frozen=True)
class _Work:
    what: Subject
    images: Inputs
    norm: Norm
    method: Method
    batch: int
    threshold: float | None = None  # of g
    seen: dict[int, ImageReference] = field(default_factory=dict)  # by place: the images that were read

    def keys(self, places: Sequence[int], eps: float) -> list[Key]:
        """Of images by their pixels: under one name there may be certificates of what the picture was before."""
        unseen = [place for place in places if place not in self.seen]
        for start in range(0, len(unseen), self.batch):
            self._read(unseen[start : start + self.batch])
        return [(self.seen[place], self.what.reference.sha256, eps, self.norm, self.method) for place in places]

    def _read(self, places: Sequence[int]) -> Tensor:
        images = self.images.read(places)
        for place, image in zip(places, images, strict=True):
            self.seen[place] = ImageReference(*self.images.names[place], image_sha256(image.numpy()))
        return images

    def made(self, places: Sequence[int], eps: float, there: Mapping[Key, Certificate]) -> Iterator[list[Certificate]]:
        """The certificates of these images that are not there, a batch at a time."""
        what, device = self.what, next(self.what.model.parameters()).device
        for start in range(0, len(places), self.batch):
            group = places[start : start + self.batch]
            images = self._read(group)
            keys = self.keys(group, eps)
            missing = [number for number, key in enumerate(keys) if key not in there]
            if not missing:
                continue
            began = time.perf_counter()
            bounds = what.discriminator.upper_bound(
                images[missing].to(device), eps, threshold=self.threshold, method=self.method, norm=self.norm
            ).tolist()
            seconds = round((time.perf_counter() - began) / len(missing), 6)
            yield [
                _certificate(what, keys[number][0], self.norm, eps, self.method, bound, seconds)
                for number, bound in zip(missing, bounds, strict=True)
            ]


def _certificate(
    what: Subject, reference: ImageReference, norm: str, eps: float, method: str, bound: float, seconds: float
) -> Certificate:
    confidence = None if what.classes is None else confidence_of(bound, what.shift, what.classes)
    return Certificate(
        reference, what.reference, norm, eps, method, bound, what.shift, what.classes, confidence, seconds
    )


def _there(out: Path) -> dict[Key, Certificate]:
    """The certificates of the result and of what interrupted calls have left beside it."""
    files = [out] if out.is_file() else []
    found = [one for file in [*files, *_parts(out)] for one in read(file)[0]]
    for one in found:
        meant = None if one.classes is None else confidence_of(one.bound, one.shift, one.classes)
        follows = meant is None or (one.confidence is not None and math.isclose(one.confidence, meant, rel_tol=1e-12))
        if not one.intact or not follows:
            raise ProodError(f"a certificate of {one.input.name} in {out} was changed after it was written: remove it")
    return {_key(one): one for one in found}


def _key(one: Certificate) -> Key:
    return one.input, one.model.sha256, one.eps, one.norm, one.method


def _parts(out: Path) -> list[Path]:
    ours = re.compile(re.escape(out.name) + r"\.part\d+")
    return sorted(file for file in out.parent.glob("*.part*") if ours.fullmatch(file.name))
