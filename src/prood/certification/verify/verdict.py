"""Is a certificate true? Confirmed by a proof of our own, refuted by a fact, or not decided."""

import os
import re
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from prood.certification.record import Certificate, image_sha256
from prood.certification.verify.ball import Ball
from prood.certification.verify.committee import Discriminator, bounds, highest
from prood.certification.verify.exact import Refuted, Undecided, confidence_is_too_small, in_logit
from prood.certification.verify.network import Model, read_model, sha256_of
from prood.data import Images, open_set
from prood.data.formats.members import member
from prood.data.formats.pictures import decode, fit
from prood.data.images import Shape
from prood.errors import ProodError
from prood.pretrained.hub import is_on_hub

NOISE = 50_000
"""Images of noise: a line may name a billion, and making them takes a millisecond each."""

Outcome = Literal["confirmed", "refuted", "not decided"]


@dataclass(frozen=True)
class Verdict:
    """`bound` is the lowest that we proved, `value` the highest that we saw the deployed network reach for certain."""

    outcome: Outcome
    reason: str
    bound: float | None = None
    value: float | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Verifier:
    """Verifies certificates one by one; a model is read once, and an image set is open as long as they name it.

    `model` and `input` say where to look instead of where the certificate says. Its hashes decide all the same.
    """

    def __init__(self, *, model: str | None = None, input: str | None = None) -> None:
        self.model, self.input = model, input
        self._models: dict[str, Model] = {}
        self._opened: tuple[str, Shape, Images] | None = None

    def verify(self, certificate: Certificate) -> Verdict:
        start = time.perf_counter()
        try:
            with np.errstate(all="ignore"):  # what is not finite in the end is looked for, and decides nothing
                verdict = self._verify(certificate)
        except Refuted as fact:
            verdict = Verdict("refuted", str(fact))
        except Undecided as reason:
            verdict = Verdict("not decided", str(reason))
        return replace(verdict, seconds=time.perf_counter() - start)

    def _verify(self, certificate: Certificate) -> Verdict:
        if not certificate.intact:
            raise Refuted("it was changed after it was written: its digest does not match")
        model = self._model(certificate)
        image = self._image(certificate, model.network.shape)
        _check_confidence(certificate, model)
        if certificate.arithmetic != "float32":
            raise Undecided(f"it is about {certificate.arithmetic!r} arithmetic: only float32 can be verified")
        eps = min(certificate.eps, float(image.size))  # in every norm, a ball of that radius is all of [0, 1]^d
        return decide(model.network, Ball(image, certificate.norm, eps), certificate.bound)

    def _model(self, certificate: Certificate) -> Model:
        path = self.model or certificate.model.path
        if not self.model and is_on_hub(path):  # whoever wrote the line does not decide what is downloaded
            raise Undecided(f"the model is on the Hub: pass --model {path} to download it")
        if path not in self._models:
            # The hash first: a file that is not the one that is meant refutes, whatever is in it.
            _check_hash("the model", path, certificate.model.sha256, sha256_of(path))
            self._models[path] = read_model(path)
        model = self._models[path]
        _check_hash("the model", path, certificate.model.sha256, model.sha256)
        return model

    def _image(self, certificate: Certificate, shape: Shape) -> NDArray[np.float32]:
        """float32 (C, H, W) in [0, 1]; in a folder `input`, a picture is looked for under its own name."""
        row, own = certificate.input.row, certificate.input.name
        name = own if self.input is None else self.input
        try:
            inside = member(own, row, self.input)
            if inside is not None:
                pixels = fit(decode(inside, own), shape)
            elif row is None:
                path = Path(name)
                pixels = fit(decode(path / Path(own).name if os.path.isdir(path) else path), shape)
            else:
                if re.fullmatch("[a-z]+:[0-9]+", name) and int(name.partition(":")[2]) > NOISE:
                    raise Undecided(f"{name} are images that are made: at most {NOISE:,} are, to verify one")
                if self._opened is None or self._opened[:2] != (name, shape):
                    self._opened = name, shape, open_set(name, shape=shape)
                images = self._opened[2]
                if row >= len(images):
                    raise Refuted(f"{images.name} has no row {row}: its rows are 0 to {len(images) - 1}")
                pixels = images.take([row])[0]
        except ProodError as error:
            raise Undecided(f"{error}") from None
        except OSError as error:  # a name that is too long, say
            raise Undecided(f"cannot read {name} ({error.strerror}): check its permissions") from None
        image = pixels.numpy().astype(np.float32) / np.float32(255)
        place = name if row is None else f"row {row} of {name}"
        _check_hash("the image", place, certificate.input.sha256, image_sha256(image))
        if image.shape != shape:
            raise Refuted(f"the model takes images of shape {shape}, not {image.shape}")
        return image


def decide(network: Discriminator, ball: Ball, stated: float) -> Verdict:
    """The deployed g returns a float32, so a proof that it stays below the next one above `stated` is enough."""
    near = np.float32(stated)
    limit = float(np.nextafter(near, np.float32(np.inf)) if float(near) <= stated else near)
    lowest, reason = None, "there is no bound"
    try:
        for name, bound in bounds(network, ball):
            if bound < limit:
                return Verdict("confirmed", f"by {name}", bound)
            if lowest is None or bound < lowest:
                lowest, reason = bound, f"the lowest bound that we can prove (by {name}) is higher"
    except Undecided as stopped:
        reason = str(stopped)
    point = highest(network, ball, stated)
    value = None if point is None else point.value
    if value is not None and value > stated:
        return Verdict("refuted", "an image in the ball has a higher value", lowest, value)
    return Verdict("not decided", reason, lowest, value)


def _check_hash(what: str, where: str, stated: str, found: str) -> None:
    if stated != found:
        starts = f"its sha256 starts with {found[:12]}, not {stated[:12]}"
        raise Refuted(f"{what} at {where} is a different one: {starts}")


def _check_confidence(certificate: Certificate, model: Model) -> None:
    """What the certificate says of the joint model must follow from the bound."""
    classes, confidence = certificate.classes, certificate.confidence
    if classes is None and confidence is None and certificate.shift == 0:
        return  # it speaks of g alone
    if model.shift is None:
        raise Refuted("it states a shift, classes or a confidence, but the model is a bare discriminator")
    if certificate.shift != model.shift:
        raise Refuted(f"it states a shift of {certificate.shift}, but the model's is {model.shift}")
    if classes is None or confidence is None:
        raise Refuted("it states only one of classes and confidence")
    if model.classes == -1:
        raise Undecided("the model's file does not say how many classes there are")
    if classes != model.classes:
        raise Refuted(f"it states {classes} classes, but the model has {model.classes}")
    low, high = model.gate(in_logit(certificate.bound, certificate.shift))
    if confidence_is_too_small(confidence, low, classes):
        raise Refuted(f"a confidence of {confidence} does not follow from the bound: it is too small")
    if confidence_is_too_small(confidence, high, classes):
        raise Undecided(f"a confidence of {confidence} is as near to what follows from the bound as rounding goes")
