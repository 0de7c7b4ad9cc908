"""A model's file, read as numbers: no torch, and no code of the networks that it came from."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from prood import pretrained
from prood.certification.verify.exact import SPREAD, Undecided, least_exponentials
from prood.certification.verify.gate import Gate
from prood.certification.verify.layers import Convolution, Layer, Linear, Network, Normalise, Pool, ReLU, Shape
from prood.errors import ProodError
from prood.reading import content, json_of

# What the sizes of a discriminator mean, written down a second time: the first is part of what is verified. `128` is a
# 3×3 convolution with a ReLU, `s2` its stride, `p2` a mean of 2×2 squares, `fc128` a linear layer with a ReLU.
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
}

MODEL = 2**36
"""Bytes of a model's file."""

TYPES = {"F32": "<f4", "F16": "<f2"}
Tensors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Model:
    """What a certificate is about. `shift` and `classes` are None in a bare discriminator; -1 classes: unknown."""

    sha256: str
    network: Network
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
        raise Undecided(f"{path} is no model that Prood wrote ({error!r})") from None
    digest = hashlib.sha256(data).hexdigest()
    if isinstance(spec, dict) and spec.get("name") in ("prood", "fusion", "gated"):
        network = _network(spec.get("discriminator"), entries, "discriminator.")
        try:
            shift = float(_tensors(entries, "shift")[""].reshape(()))
        except (KeyError, ValueError):
            raise Undecided(f"{path} is a joint model without a shift") from None
        gate = _gate(spec, entries, path) if spec["name"] == "gated" else Gate()
        return Model(digest, network, shift, _classes(spec, facts), gate)
    return Model(digest, _network(spec, entries, ""))


def _bytes(path: Path | str) -> bytes:
    if "\0" in str(path):
        raise Undecided("there is no model at a path with a NUL: say where with --model")
    file = pretrained.model_path(path)
    try:
        return content(file, MODEL)
    except ProodError as error:
        raise Undecided(f"there is no model at {file} ({error}): say where with --model") from None
    except OSError as error:
        raise Undecided(f"there is no model at {file} ({error.strerror}): say where with --model") from None


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
    if not isinstance(size, str) or size not in SIZES:
        raise Undecided(f"unknown discriminator size {size!r}")
    if not isinstance(image, list | tuple) or len(image) != 3 or not all(type(side) is int for side in image):
        raise Undecided(f"a discriminator takes images of three sides, not {image!r}")
    try:
        return Network(tuple(_layers(SIZES[size], tuple(image), _tensors(entries, prefix))))
    except (KeyError, ValueError) as error:
        raise Undecided(f"the weights are not those of a discriminator of size {size!r} ({error})") from None


def _layers(words: str, image: Shape, tensors: Tensors) -> list[Layer]:
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
    shape, place, flat = image, 1, False
    for word in words.split():
        if word == "p2":
            outside: Shape = (shape[0], shape[1] // 2, shape[2] // 2)
            layers.append(Pool(shape, outside))
        elif word.startswith("fc"):
            place += 0 if flat else 1  # the flattening has a number, too
            flat, width = True, int(word[2:])
            outside = (width,)
            weight = take("weight", (width, int(np.prod(shape))))
            layers += [Linear(shape, outside, weight, take("bias", outside)), ReLU()]
        else:
            width, stride = int(word.partition("s")[0]), int(word.partition("s")[2] or 1)
            outside = (width, -(-shape[1] // stride), -(-shape[2] // stride))
            weight = take("weight", (width, shape[0], 3, 3))
            layers += [Convolution(shape, outside, weight, take("bias", (width,)), stride), ReLU()]
        shape, place = outside, place + (1 if word == "p2" else 2)
    logarithms, bias = tensors.pop("tail.1.log_weight"), tensors.pop("tail.1.bias")
    if logarithms.shape != (1, int(np.prod(shape))) or bias.shape != (1,) or tensors:
        raise ValueError(f"the last layer does not fit, or there are more tensors: {', '.join(sorted(tensors))}")
    layers.append(Linear(shape, (1,), -least_exponentials(logarithms), bias.astype(np.float64), SPREAD))
    return layers
