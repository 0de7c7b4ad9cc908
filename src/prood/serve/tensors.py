"""Tensors of the inference protocol: as JSON, or as bytes behind it (the binary tensor data extension of KServe v2).

With the extension a header says how long the JSON is. Each tensor whose parameters have a `binary_data_size` takes as
many of the bytes that follow, in order: little-endian, row by row; a text is its length in four bytes and its UTF-8.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response
from torch import Tensor

from prood.detector.inputs import Shape
from prood.serve import intake
from prood.serve.answer import Refused, answer, bad
from prood.serve.bodies import Allowed, parsed_json
from prood.serve.options import Options

HEADER = "Inference-Header-Content-Length"
INPUT = "images"
TYPES: dict[str, Any] = {"FP32": np.dtype("<f4"), "UINT8": np.dtype("u1")}
KINDS = {"label": "INT64", "accepted": "BOOL", "reason": "BYTES"}
"""Types of outputs; the others are FP64."""
_BYTES = {"INT64": "<i8", "BOOL": "?", "FP64": "<f8"}


@dataclass(frozen=True)
class Wanted:
    """An output that is asked for, and whether as bytes."""

    name: str
    binary: bool


def json_length(request: Request) -> int | None:
    """How much of the body is JSON; None: all of it."""
    said = request.headers.get(HEADER)
    if said is None:
        return None
    if not (said.isascii() and said.isdecimal() and len(said) < 16):
        raise bad(f"{HEADER} is the length of the JSON in bytes, a whole number")
    return int(said)


def parse(body: bytes, length: int | None, shape: Shape, options: Options) -> tuple[Tensor, dict[str, Any]]:
    """The images, float32 (N, C, H, W) in [0, 1], and what else the JSON says."""
    if length is not None and length > len(body):
        raise bad(f"{HEADER} is {length}, and the body has {len(body)} bytes")
    values = parsed_json(body if length is None else body[:length], Allowed.of((), shape, options))
    inputs = values.pop("inputs", None)
    if not (isinstance(inputs, list) and len(inputs) == 1 and isinstance(inputs[0], dict)):
        raise bad(f"send exactly one input, named {INPUT}")
    raw = None if length is None else memoryview(body)[length:]
    return _images(inputs[0], raw, shape, options), values


def _images(given: dict[str, Any], raw: memoryview | None, takes: Shape, options: Options) -> Tensor:
    shape, kind = given.get("shape"), given.get("datatype")
    if given.get("name") != INPUT:
        raise bad(f"there is one input, named {INPUT}")
    if not isinstance(kind, str) or kind not in TYPES:
        raise bad(f"the datatype is one of {', '.join(TYPES)}")
    if not isinstance(shape, list) or [*map(type, shape)] != [int] * 4 or tuple(shape[1:]) != takes or shape[0] < 1:
        raise bad(f"the shape is [N, {', '.join(map(str, takes))}], and N is 1 or more")
    if shape[0] > options.images:
        raise Refused(413, f"{shape[0]} images are too many: {options.images} are allowed in one request")
    size = _parameters(given).get("binary_data_size")
    if size is None:
        if raw:
            raise bad("bytes follow the JSON that no input asks for: give the input's binary_data_size")
        return _from_json(given.get("data"), shape, kind)
    if raw is None:
        raise bad(f"an input has a binary_data_size, but the request lacks the header {HEADER}")
    if "data" in given:
        raise bad("the input has data and a binary_data_size: send one of them")
    expected = math.prod(shape) * TYPES[kind].itemsize
    if type(size) is not int or size != expected or len(raw) != expected:
        raise bad(f"{expected} bytes of {kind} must follow the JSON, and be its binary_data_size: there are {len(raw)}")
    pixels = torch.from_numpy(np.frombuffer(raw, TYPES[kind]).astype(np.float32)).reshape(shape)
    return pixels / 255 if kind == "UINT8" else intake.in_range(pixels, INPUT)


def _from_json(flat: Any, shape: list[int], kind: str) -> Tensor:
    if not isinstance(flat, list):
        raise bad(f"data is missing: send the tensor as a JSON list, or as bytes with the header {HEADER}")
    types = (int, float) if kind == "FP32" else (int,)
    nested = bool(flat) and isinstance(flat[0], list)
    array = intake.numbers_in(flat, tuple(shape) if nested else (math.prod(shape),), types)
    if array is None:
        raise bad(
            f"data must be a list of {math.prod(shape)} numbers of the datatype {kind}, flat or nested by the shape"
        )
    if kind == "UINT8" and not (array.min() >= 0 and array.max() <= 255):
        raise bad("data of the datatype UINT8 lies between 0 and 255")
    pixels = torch.from_numpy(array).float().reshape(shape)
    return pixels / 255 if kind == "UINT8" else intake.in_range(pixels, INPUT)


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    found = given.get("parameters", {})
    if not isinstance(found, dict):
        raise bad("parameters is an object")
    return found


def wanted(values: Mapping[str, Any]) -> tuple[list[Wanted] | None, bool]:
    """The outputs that are asked for, None for all of them; and whether those that do not say come as bytes."""
    outputs, all_binary = values.get("outputs"), _switch(_parameters(values), "binary_data_output", False)
    if outputs is None or outputs == []:
        return None, all_binary
    if not isinstance(outputs, list) or not all(isinstance(one, dict) and "name" in one for one in outputs):
        raise bad("outputs is a list of objects with a name")
    asked = [Wanted(str(one["name"]), _switch(_parameters(one), "binary_data", all_binary)) for one in outputs]
    return list({one.name: one for one in asked}.values()), all_binary


def _switch(parameters: Mapping[str, Any], name: str, default: bool) -> bool:
    given = parameters.get(name, default)
    if not isinstance(given, bool):
        raise bad(f"{name} is true or false")
    return given


def response(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], asked: list[Wanted]) -> Response:
    """The outputs in this order, as JSON, with bytes behind it where one is wanted as bytes."""
    outputs, behind = [], []
    for one in asked:
        told, array = _described(one.name, arrays[one.name]), arrays[one.name]
        if one.binary:
            raw = _raw(told["datatype"], array)
            outputs.append(told | {"parameters": {"binary_data_size": len(raw)}})
            behind.append(raw)
        else:
            outputs.append(told | {"data": _plain(told["datatype"], array)})
    if not behind:
        return answer({**facts, "outputs": outputs})
    head = json.dumps({**facts, "outputs": outputs}, allow_nan=False).encode("ascii")
    return Response(b"".join([head, *behind]), 200, {HEADER: str(len(head))}, "application/octet-stream")


def _described(name: str, array: NDArray[Any]) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "datatype": KINDS.get(name, "FP64")}


def _plain(kind: str, array: NDArray[Any]) -> list[Any]:
    data: list[Any] = array.reshape(-1).tolist()
    return [text or "" for text in data] if kind == "BYTES" else data  # the protocol has no null


def _raw(kind: str, array: NDArray[Any]) -> bytes:
    if kind != "BYTES":
        return np.ascontiguousarray(array, dtype=_BYTES[kind]).tobytes()
    texts = [text.encode() for text in _plain(kind, array)]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
