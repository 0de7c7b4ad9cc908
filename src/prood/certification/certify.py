"""Certifying images: pictures by path and image sets by name, into a file of certificates.

Certificates in the file are reused, so an interrupted call continues. `prood.scoring` certifies into folders.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from prood.atomic import check, locked
from prood.bounds import Method, Norm
from prood.certification import Certificate, ImageReference, ModelReference, append, file_sha256, image_sha256, read
from prood.detector import Detector
from prood.detector.named import Inputs
from prood.errors import BadValue, Damaged, Refuted
from prood.models import model_path, read_metadata

Certifier = Callable[[Tensor, str, float, float], str]
Key = tuple[ImageReference, str, float, str, str]
"""Image, model, radius, norm and method: what makes a certificate the one that is asked for."""


@dataclass(frozen=True)
class Request:
    """What is to be proven: in balls of which norm and radii, by which bound, and how many images at a time.

    With `radius`, `certify_images` also searches how far each image provably stays rejected.
    """

    eps: Sequence[float]
    norm: Norm = "linf"
    method: Method = "best"
    batch: int = 64
    radius: bool = False


def own_radius(path: Path | str) -> float:
    """The radius that a model was trained for, which its file states."""
    eps = read_metadata(path).eps
    if eps is None:
        raise BadValue(f"{path} does not state a radius: give one with --eps")
    return eps


def certify(
    detector: Detector, path: Path | str, images: Inputs, request: Request, out: Path | None = None, *, again: int = 0
) -> list[Certificate]:
    """Certify each image at each radius, and return the certificates radius by radius; `path` is where the model is.

    With a file `out`, what is not there yet is added to it. The method "auto" stops where the verdict at the detector's
    threshold is known.

    A line in a file is a claim: anyone can write one. For the first `again` images, what was there before is computed
    again, and where the claim is lower than what is found, what is returned is what was found.
    """
    if request.method == "auto" and out is not None:
        raise BadValue("bounds by auto hold for one threshold only: choose alpha-crown, crown or bab for certificates")
    work = _Work(detector, ModelReference(str(path), file_sha256(model_path(path))), images, request)
    places = range(len(images))
    if out is None:
        return [one for radius in request.eps for one in work.made(places, radius, {})]
    check(out)
    with locked(out):
        there = _there(out, work)
    for radius in request.eps:
        for start in range(0, len(images), request.batch):
            made = list(work.made(places[start : start + request.batch], radius, there))
            written = [one for one in made if math.isfinite(one.bound)]  # else there is nothing to certify
            if written:
                with locked(out):  # another call may be at the same file
                    append(out, *written)
            there |= {_key(one): one for one in made}
    for radius in request.eps:
        keys = dict(zip(places[:again], work.keys(places[:again], radius), strict=True))
        claimed = [place for place, key in keys.items() if key not in work.own]
        work.compare(claimed, {place: there[keys[place]] for place in claimed}, out)
        for one in work.made(claimed, radius, {}):
            there[_key(one)] = max(there[_key(one)], one, key=lambda either: either.bound)
    return [there[key] for radius in request.eps for key in work.keys(places, radius)]


@dataclass(frozen=True)
class _Work:
    detector: Detector
    reference: ModelReference
    images: Inputs
    request: Request
    seen: dict[int, ImageReference] = field(default_factory=dict)  # by place: the images that were read
    own: set[Key] = field(default_factory=set)  # what was computed here

    def keys(self, places: Sequence[int], eps: float) -> list[Key]:
        """By the images' pixels: under one name there may be certificates of what the picture was before."""
        request, unseen = self.request, [place for place in places if place not in self.seen]
        for start in range(0, len(unseen), request.batch):
            self._read(unseen[start : start + request.batch])
        return [(self.seen[place], self.reference.sha256, eps, request.norm, request.method) for place in places]

    def _read(self, places: Sequence[int]) -> Tensor:
        images = self.images.read(places)
        for place, image in zip(places, images, strict=True):
            self.seen[place] = ImageReference(*self.images.names[place], image_sha256(image.numpy()))
        return images

    def made(self, places: Sequence[int], eps: float, there: Mapping[Key, Certificate]) -> Iterator[Certificate]:
        """The certificates of these images that are not there; they are made a batch at a time."""
        detector, norm, method = self.detector, self.request.norm, self.request.method
        stop = detector.stop if method == "auto" else None
        for start in range(0, len(places), self.request.batch):
            group = places[start : start + self.request.batch]
            images, keys = self._read(group), self.keys(group, eps)
            missing = [number for number, key in enumerate(keys) if key not in there]
            if not missing:
                continue
            began = time.perf_counter()
            found = detector.bound_of_g(images[missing], eps, stop, method=method, norm=norm).tolist()
            seconds = round((time.perf_counter() - began) / len(missing), 6)
            for number, bound in zip(missing, found, strict=True):
                said, image = stated(detector, bound), keys[number][0]
                facts = bound, detector.shift, detector.rule.classes, said, seconds
                self.own.add(keys[number])
                yield Certificate(image, self.reference, norm, eps, method, *facts)

    @torch.no_grad()
    def compare(self, places: Sequence[int], claims: Mapping[int, Certificate], out: Path) -> None:
        """Refuse a file with a bound that the image itself exceeds; the verifier refutes it, too."""
        for start in range(0, len(places), self.request.batch):
            group = places[start : start + self.request.batch]
            values = self.detector.discriminator.covered(self._read(group).to(self.detector.device)).tolist()
            for place, value in zip(group, values, strict=True):
                if value > claims[place].bound:
                    name = self.images.name(place)
                    raise Refuted(f"a certificate of {name} in {out} is below the model's own value: remove it")

    def contradicts(self, one: Certificate) -> bool:
        """Whether it says what does not follow from its bound. About another model, only that one's file can tell."""
        if one.model.sha256 != self.reference.sha256:
            return False
        if (one.shift, one.classes) != (self.detector.shift, self.detector.rule.classes):
            return True
        said, follows = one.confidence, stated(self.detector, one.bound)
        return said != follows and (said is None or follows is None or not math.isclose(said, follows, rel_tol=1e-12))


def certifier(
    detector: Detector, path: Path | str, name: str, norm: Norm = "linf", method: Method = "best"
) -> Certifier:
    """Makes lines of certificates about pictures by their names, from bounds of g: `line(image, name, eps, ḡ)`.

    They call the model at `path` by its `name`: whoever gets them need not know where it lies.
    """
    reference = ModelReference(name, file_sha256(model_path(path)))

    def line(image: Tensor, name: str, eps: float, bound: float) -> str:
        shown = ImageReference(name, None, image_sha256(image.cpu().numpy()))
        facts = bound, detector.shift, detector.rule.classes, stated(detector, bound)
        return Certificate(shown, reference, norm, eps, method, *facts).to_json()

    return line


def follow(detector: Detector, bounds: Sequence[float]) -> Sequence[float | None]:
    """The confidences that follow from bounds of g; None for a bare discriminator."""
    if detector.rule.classes is None:
        return [None] * len(bounds)
    scores = detector.score.bound_from(torch.tensor(bounds, dtype=torch.float64, device=detector.device))
    return [detector.rule.bound(score) for score in scores.tolist()]


def stated(detector: Detector, bound: float) -> float | None:
    """What `stated` says about one bound."""
    return follow(detector, [bound])[0]


def _there(out: Path, work: _Work) -> dict[Key, Certificate]:
    """The certificates of the file; one that was changed is refused, with the file."""
    found = read(out)[0] if out.is_file() else []
    for one in found:
        if not one.intact or work.contradicts(one):
            raise Damaged(f"a certificate of {one.input.name} in {out} was changed after it was written: remove it")
    return {_key(one): one for one in found}


def _key(one: Certificate) -> Key:
    return one.input, one.model.sha256, one.eps, one.norm, one.method
