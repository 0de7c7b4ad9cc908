"""A model's file, read as numbers: no torch, and no code of the networks that it came from."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from prood import pretrained
from prood.certification.verify.committee import Committee, Discriminator
from prood.certification.verify.exact import SPREAD, Undecided, least_exponentials
from prood.certification.verify.gate import Gate, Rising
from prood.certification.verify.layers import Convolution, Layer, Linear, Network, Normalise, Pool, ReLU, Shape
from prood.errors import ProodError
from prood.reading import content, json_of

# What the sizes of a discriminator mean, written down a second time: the first is part of what is verified. `128` is a
# 3×3 convolution with a ReLU, `s2` its stride, `p2` a mean of 2×2 squares, `fc128` a linear layer with a ReLU.
# A size is a name, such words, or averages in front of a name, as in `p4 photo-M`.
SIZES = {
    "S": "128 256s2 256 p2 fc128",
    "SR": "128 p2 256s2 p2 256 p2 fc128",
    "XS": "64 128s2 128 p2 fc128",
    "SR2": "128 256s2 p2 256 p2 fc128",
    "XL_b": "128 128 256s2 256 256 fc512",
    "C1": "128 128 256s2 256 256 fc512",
    "C2": "256 256 512s2 512 512 fc1024",
    "C3": "256 512s2 512 fc512",
    "C3s": "256 512s2 512 p2 fc128",
    "C4": "512 1024s2 512 fc128",
    "digits": "16s2 fc64",
    "digits-XS": "4s2 fc16",
    "digits-S": "8s2 fc32",
    "digits-L": "32s2 fc64",
    "digits-deep": "16s2 32s2 fc64",
    "photo-XS": "32s2 64s2 p2 fc64",
    "photo-S": "32s2 64s2 64 fc128",
    "photo-M": "64s2 128s2 128 p2 fc128",
    "photo-L": "64 128s2 128s2 p2 fc128",
    "photo-XL": "64 128s2 256s2 256 p2 fc128",
}
WORD = re.compile(r"(?P<pool>p)(?P<side>[0-9]{1,5})|(?P<linear>fc)?(?P<width>[0-9]{1,5})(s(?P<stride>[0-9]{1,3}))?")

MODEL = 2**36
"""Bytes of a model's file."""

TYPES = {"F32": "<f4", "F16": "<f2"}
Tensors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Model:
    """What a certificate is about. `shift` and `classes` are None in a bare discriminator; -1 classes: unknown."""

    sha256: str
    network: Discriminator
    shift: float | None = None
    classes: int | None = None
    gate: Gate = field(default_factory=Gate)


def sha256_of(path: Path | str) -> str:
    return hashlib.sha256(_bytes(path)).hexdigest()


def read_model(path: Path | str) -> Model:
    """`Undecided` says what is missing or not supported."""
    data = _bytes(path)
    try:
        entries = dict(deserialize(data))  # type: ignore[no-untyped-call]
        length = int.from_bytes(data[:8], "little")
        facts = json_of(json_of(data[8 : 8 + length])["__metadata__"]["prood"])
        spec = facts["architecture"]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Undecided(f"{path} was not written by Prood ({error!r})") from None
    digest = hashlib.sha256(data).hexdigest()
    if isinstance(spec, dict) and spec.get("name") in ("prood", "fusion", "gated"):
        network = _discriminator(spec.get("discriminator"), entries, "discriminator.")
        try:
            shift = float(_tensors(entries, "shift")[""].reshape(()))
        except (KeyError, ValueError):
            raise Undecided(f"{path} is a joint model without a shift") from None
        gate = _gate(spec, entries, path) if spec["name"] == "gated" else Gate()
        return Model(digest, network, shift, _classes(spec, facts), gate)
    return Model(digest, _discriminator(spec, entries, ""))


def _bytes(path: Path | str) -> bytes:
    if "\0" in str(path):
        raise Undecided("the path to the model contains a NUL: give its place with --model")
    file = Path(path)
    try:
        file = pretrained.model_path(path)
        return content(file, MODEL)
    except ProodError as error:
        raise Undecided(f"there is no model at {file} ({error}): give its place with --model") from None
    except OSError as error:
        raise Undecided(f"there is no model at {file} ({error.strerror}): give its place with --model") from None


def _tensors(entries: dict[str, Any], prefix: str) -> Tensors:
    """Those whose names start with `prefix`, without it.

    Weights in half precision are deployed as float32 with the same values, which holds every float16 exactly. Other
    types are refused.
    """
    found = {}
    for name, entry in entries.items():
        if name.startswith(prefix):
            if entry["dtype"] not in TYPES:
                raise Undecided(f"{name} is of type {entry['dtype']}, not float32 or float16")
            values = np.frombuffer(bytes(entry["data"]), TYPES[entry["dtype"]]).astype(np.float32)
            if not np.isfinite(values).all():
                raise Undecided(f"{name} holds values that are not finite")
            found[name.removeprefix(prefix)] = values.reshape(entry["shape"])
    return found


def _gate(spec: dict[str, Any], entries: dict[str, Any], path: Path | str) -> Gate:
    found = [_tensors(entries, name).get("") for name in ("knots", "caps")]
    if not all(values is not None and values.shape == (spec.get("knots", 0),) for values in found):
        raise Undecided(f"{path} does not hold the knots and the caps of the gate that it describes")
    return Gate(*(tuple(values.tolist()) for values in found if values is not None))


def _discriminator(spec: Any, entries: dict[str, Any], prefix: str) -> Discriminator:
    if not isinstance(spec, dict) or spec.get("name") != "committee":
        return _network(spec, entries, prefix)
    specs, counts = spec.get("members"), spec.get("knots")
    if not isinstance(specs, list) or not isinstance(counts, list) or len(specs) != len(counts) or len(specs) < 2:
        raise Undecided("the description of the committee does not name its members and their scales")
    members = []
    for number, (one, count) in enumerate(zip(specs, counts, strict=True)):
        found = _tensors(entries, f"{prefix}scales.{number}.")
        if found.keys() != {"knots", "values"} or any(some.shape != (count,) for some in found.values()):
            raise Undecided(f"the file does not hold the scale of member {number + 1} that it describes")
        scale = Rising(*(tuple(found[name].tolist()) for name in ("knots", "values")))
        members.append((_network(one, entries, f"{prefix}members.{number}."), scale))
    if len({network.shape for network, _ in members}) > 1:
        raise Undecided("the members of the committee take different images")
    return Committee(tuple(members))


def _classes(spec: dict[str, Any], facts: dict[str, Any]) -> int:
    """How many classes the classifier has: from its architecture or the list of their names; -1 if neither says."""
    classifier = spec.get("classifier")
    stated = classifier.get("classes") if isinstance(classifier, dict) else None
    names = facts.get("classes")
    counts = {value for value in (stated, len(names) if isinstance(names, list) else None) if isinstance(value, int)}
    return counts.pop() if len(counts) == 1 else -1


def _network(spec: Any, entries: dict[str, Any], prefix: str) -> Network:
    """The layers that a discriminator of this description has, with the weights of the file."""
    if not isinstance(spec, dict) or spec.get("name") != "discriminator":
        name = spec.get("name") if isinstance(spec, dict) else spec
        raise Undecided(f"no rule for the architecture {name!r}: only Prood's discriminators can be verified")
    size, image = spec.get("size", "S"), spec.get("image", (3, 32, 32))
    words = _words(size)
    if not isinstance(image, list | tuple) or len(image) != 3 or not all(type(side) is int for side in image):
        raise Undecided(f"a discriminator takes images of three sides, not {image!r}")
    try:
        return Network(tuple(_layers(words, tuple(image), _tensors(entries, prefix))))
    except (KeyError, ValueError) as error:
        raise Undecided(f"the weights are not those of a discriminator of size {size!r} ({error})") from None


def _words(size: Any) -> list[dict[str, Any]]:
    """What each word of a size says."""
    *averages, last = size.split() if isinstance(size, str) and size.split() else [""]
    found = [WORD.fullmatch(word) for word in (*averages, *SIZES.get(last, last).split())]
    words = [match.groupdict() for match in found if match]
    if not words or len(words) < len(found):
        raise Undecided(f"unknown discriminator size {size!r}")
    for word in words:
        numbers = {key: int(word[key] or 1) for key in ("side", "width", "stride")}
        if 0 in numbers.values() or (word["linear"] and word["stride"]):
            raise Undecided(f"unknown discriminator size {size!r}")
        word |= numbers
    return words


def _layers(words: list[dict[str, Any]], image: Shape, tensors: Tensors) -> list[Layer]:
    place = 0

    def take(kind: str, shape: Shape) -> NDArray[np.float64]:
        found = tensors.pop(f"body.{place}.{kind}")
        if found.shape != shape:
            raise ValueError(f"{kind} {place} has shape {found.shape} instead of {shape}")
        return found.astype(np.float64)

    channels = image[0]
    mean, std = take("mean", (channels, 1, 1)), take("std", (channels, 1, 1))
    if not (std >= 2.0**-100).all():
        raise Undecided("a standard deviation is not positive, or tiny")
    layers: list[Layer] = [Normalise(image, image, mean, std)]
    shape, place = image, 1
    for word in words:
        width, stride, side = word["width"], word["stride"], word["side"]
        outside: Shape = (width,)
        if not word["linear"] and len(shape) == 1:
            raise ValueError("a convolution or an average follows a linear layer")
        if word["pool"]:
            outside = (shape[0], shape[1] // side, shape[2] // side)
            layers.append(Pool(shape, outside, side))
        elif word["linear"]:
            place += 0 if len(shape) == 1 else 1  # the flattening has a number, too
            weight = take("weight", (width, int(np.prod(shape))))
            layers += [Linear(shape, outside, weight, take("bias", outside)), ReLU()]
        else:
            outside = (width, -(-shape[1] // stride), -(-shape[2] // stride))
            weight = take("weight", (width, shape[0], 3, 3))
            layers += [Convolution(shape, outside, weight, take("bias", (width,)), stride), ReLU()]
        if not np.prod(outside):
            raise ValueError(f"images of shape {image} are too small for it")
        shape, place = outside, place + (1 if word["pool"] else 2)
    logarithms, bias = tensors.pop("tail.1.log_weight"), tensors.pop("tail.1.bias")
    if logarithms.shape != (1, int(np.prod(shape))) or bias.shape != (1,) or tensors:
        raise ValueError(f"the last layer does not fit, or there are more tensors: {', '.join(sorted(tensors))}")
    layers.append(Linear(shape, (1,), -least_exponentials(logarithms), bias.astype(np.float64), SPREAD))
    return layers
