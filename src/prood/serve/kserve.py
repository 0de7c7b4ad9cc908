"""The inference protocol that KServe, Triton and MLServer share (v2, REST, JSON), for clients that know it already.

Numbers are FP64: a bound that was rounded to FP32 would be none.
"""

import math
from typing import Any

import numpy as np
import torch
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from torch import Tensor

from prood.serve import intake, schema
from prood.serve.answer import Refused, answer, bad
from prood.serve.bodies import Allowed, content_type, parsed, parsed_json, read
from prood.serve.service import Service
from prood.version import __version__

INPUT = "images"
OUTPUTS = ("label", "probabilities", "confidence", "p_in", "accepted", "reason", "upper_bound")
TYPES = ("FP32", "UINT8")
_KINDS = {"label": "INT64", "accepted": "BOOL", "reason": "BYTES"}  # the others are FP64
_DECIDED = ("accepted", "reason")  # only with a threshold

_OBJECT = {"type": "object"}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype", "data"],
    "properties": {
        "name": {"type": "string", "enum": [INPUT]},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 4, "maxItems": 4},
        "datatype": {"type": "string", "enum": [*TYPES]},
        "data": {"type": "array", "description": "Flat, or nested as the shape says."},
    },
}
_RADIUS = {"type": "number", "minimum": 0, "maximum": 1}
_SEVERAL = {"type": "array", "items": _RADIUS, "minItems": 1}
_RADII = {
    "anyOf": [_RADIUS, _SEVERAL, {"type": "string", "examples": ["0.01,8/255"]}],
    "description": "Certify, too. With several radii upper_bound has the shape [N, radii], with one number [N].",
}
_NAMED = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {"type": "object", "properties": {"eps": _RADII}},
        "inputs": {"type": "array", "items": _TENSOR, "minItems": 1, "maxItems": 1},
        "outputs": {"type": "array", "items": _NAMED},
    },
}


def add(app: FastAPI, service: Service) -> None:
    health = schema.healthy(_OBJECT, "Yes.")
    about = schema.named("name", "prood", "model", _answers(503) | {503: health[503]})
    inference = schema.named("name", "prood", "model", _answers(403, 408, 413, 415, 503))
    inference["openapi_extra"]["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": _REQUEST}},
    }

    def known(request: Request) -> None:
        if request.path_params["name"] != service.about.name:
            raise Refused(404, f"there is no such model: this service has {service.about.name}")

    @app.get("/v2", summary="The server", responses=_answers())
    async def server(request: Request) -> Response:
        return answer({"name": "prood", "version": __version__, "extensions": []})

    @app.get("/v2/health/live", summary="Whether it serves", responses=health)
    async def live(request: Request) -> Response:
        return answer({"live": True})

    @app.get("/v2/health/ready", summary="Whether it takes requests", responses=health)
    async def ready(request: Request) -> Response:
        return answer({"ready": service.ready}, 200 if service.ready else 503)

    @app.get("/v2/models/{name}", summary="Inputs and outputs", **about)
    async def metadata(request: Request) -> Response:
        known(request)
        return answer(_metadata(service))

    @app.get("/v2/models/{name}/ready", summary="Whether the model takes requests", **about)
    async def model_ready(request: Request) -> Response:
        known(request)
        return answer({"name": service.about.name, "ready": service.ready}, 200 if service.ready else 503)

    @app.post("/v2/models/{name}/infer", summary="Predict, and certify with the parameter eps", **inference)
    async def infer(request: Request) -> Response:
        known(request)
        if "inference-header-content-length" in request.headers:
            raise bad("the binary extension is not supported: send the tensor as JSON")
        if content_type(request) not in ("application/json", ""):
            raise Refused(415, "send application/json")
        with service.intake.held.body() as grown:
            body = await read(request, service.options, grown)
            images, values = await parsed(body, lambda body: _parse(body, service))
            del body
        return answer(await _infer(service, images, values))


def _answers(*statuses: int) -> schema.Responses:
    return schema.content("application/json", _OBJECT, "As the protocol says.", *statuses)


def _parse(body: bytes, service: Service) -> tuple[Tensor, dict[str, Any]]:
    values = parsed_json(body, Allowed.of((), service.detector.shape, service.options))
    inputs = values.pop("inputs", None)
    if not (isinstance(inputs, list) and len(inputs) == 1 and isinstance(inputs[0], dict)):
        raise bad(f"there is one input, named {INPUT}: send it and nothing else")
    return _tensor(inputs[0], service), values


def _tensor(given: dict[str, Any], service: Service) -> Tensor:
    """The input as float32 (N, C, H, W) in [0, 1]."""
    shape, kind, flat, takes = given.get("shape"), given.get("datatype"), given.get("data"), service.detector.shape
    if given.get("name") != INPUT:
        raise bad(f"there is one input, named {INPUT}")
    if kind not in TYPES:
        raise bad(f"the datatype is one of {', '.join(TYPES)}")
    if not isinstance(shape, list) or [*map(type, shape)] != [int] * 4 or tuple(shape[1:]) != takes or shape[0] < 1:
        raise bad(f"the shape is [N, {', '.join(map(str, takes))}], and N is 1 or more")
    if shape[0] > service.options.images:
        raise Refused(413, f"{shape[0]} images are too many: {service.options.images} are allowed in one request")
    if not isinstance(flat, list):
        raise bad("data is missing: send the tensor as a JSON list (the binary extension is not supported)")
    types = (int, float) if kind == "FP32" else (int,)
    nested = bool(flat) and isinstance(flat[0], list)
    array = intake.numbers_in(flat, tuple(shape) if nested else (math.prod(shape),), types)
    if array is None:
        raise bad(
            f"data is no list of {math.prod(shape)} numbers of the datatype {kind}, flat or nested as the shape says"
        )
    if kind == "UINT8" and not (array.min() >= 0 and array.max() <= 255):
        raise bad("data of the datatype UINT8 lies between 0 and 255")
    pixels = torch.from_numpy(array).float().reshape(shape)
    return pixels / 255 if kind == "UINT8" else intake.in_range(pixels, INPUT)


async def _infer(service: Service, images: Tensor, values: dict[str, Any]) -> dict[str, Any]:
    parameters = values.get("parameters", {})
    if not isinstance(parameters, dict):
        raise bad("parameters is an object")
    wanted, given = _wanted(values.get("outputs")), parameters.get("eps")
    eps = None if given is None else intake.radii(given, service.eps, service.options)
    with service.promise(len(images), 0 if eps is None else len(images) * len(eps)):
        found = await service.predicted(images)
        bounds = None if eps is None else await service.bounds(images, eps)
    if eps is not None and bounds is not None:
        found["upper_bound"] = bounds if isinstance(given, list) or len(eps) > 1 else bounds[:, 0]
    arrays = {name: found[name] for name in OUTPUTS if name in found}
    if wanted is not None and (unknown := [name for name in wanted if name not in arrays]):
        raise bad(f"there is no output {str(unknown[0])[:40]!r} here: there are {', '.join(arrays)}")
    outputs = [_output(name, arrays[name]) for name in (arrays if wanted is None else wanted)]
    answered = {"model_name": service.about.name, "outputs": outputs}
    return answered | ({"id": values["id"]} if isinstance(values.get("id"), str) else {})


def _wanted(outputs: Any) -> list[str] | None:
    if outputs is None or outputs == []:
        return None
    if not isinstance(outputs, list) or not all(isinstance(one, dict) and "name" in one for one in outputs):
        raise bad("outputs is a list of objects with a name")
    if any(isinstance(given := one.get("parameters"), dict) and given.get("binary_data") for one in outputs):
        raise bad("the binary extension is not supported: ask for JSON, binary_data false")
    return list(dict.fromkeys(str(one["name"]) for one in outputs))


def _output(name: str, array: np.ndarray) -> dict[str, Any]:
    kind, data = _KINDS.get(name, "FP64"), array.reshape(-1).tolist()
    if kind == "BYTES":
        data = [text or "" for text in data]  # the protocol has no null
    return {"name": name, "shape": list(array.shape), "datatype": kind, "data": data}


def _metadata(service: Service) -> dict[str, Any]:
    detector = service.detector
    shapes = {"probabilities": [-1, detector.count]}
    return {
        "name": service.about.name,
        "versions": ["1"],
        "platform": "prood",
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, *detector.shape]}],
        "outputs": [
            {"name": name, "datatype": _KINDS.get(name, "FP64"), "shape": shapes.get(name, [-1])}
            for name in OUTPUTS
            if name not in _DECIDED or detector.threshold is not None
        ],
    }
