"""The inference protocol that KServe, Triton and MLServer share (v2, REST), for clients that know it already.

Numbers are FP64: a bound that was rounded to FP32 would be none.
"""

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from torch import Tensor

from prood.serve import intake, schema, tensors
from prood.serve.answer import Refused, answer, bad
from prood.serve.bodies import content_type, parsed, read
from prood.serve.service import Service
from prood.version import __version__

OUTPUTS = ("label", "probabilities", "confidence", "p_in", "accepted", "reason", "upper_bound")
OCTETS = "application/octet-stream"
EXTENSIONS = ["binary_tensor_data", "model_repository"]
_DECIDED = ("accepted", "reason")  # only with a threshold

_OBJECT = {"type": "object"}
_TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype", "data"],
    "properties": {
        "name": {"type": "string", "enum": [tensors.INPUT]},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 4, "maxItems": 4},
        "datatype": {"type": "string", "enum": [*tensors.TYPES]},
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
        "content": {"application/json": {"schema": _REQUEST}, OCTETS: {"schema": schema.BINARY}},
    }

    def known(request: Request) -> None:
        version = request.path_params.get("version", service.fingerprint)
        if version != service.fingerprint:
            raise Refused(404, f"there is no such version: {service.about.name} is {service.fingerprint}")

    @app.get("/v2", summary="The server", responses=_answers())
    async def server(request: Request) -> Response:
        return answer({"name": "prood", "version": __version__, "extensions": EXTENSIONS})

    @app.get("/v2/health/live", summary="Whether it serves", responses=health)
    async def live(request: Request) -> Response:
        return answer({"live": True})

    @app.get("/v2/health/ready", summary="Whether it takes requests", responses=health)
    async def ready(request: Request) -> Response:
        return answer({"ready": service.house.ready}, 200 if service.house.ready else 503)

    async def metadata(request: Request) -> Response:
        known(request)
        return answer(_metadata(service))

    async def model_ready(request: Request) -> Response:
        known(request)
        ready = service.ready
        return answer({"name": service.about.name, "ready": ready}, 200 if ready else 503)

    async def infer(request: Request) -> Response:
        known(request)
        length = tensors.json_length(request)
        if content_type(request) not in ("application/json", "", *(() if length is None else (OCTETS,))):
            raise Refused(415, f"send application/json, or {OCTETS} with the header {tensors.HEADER}")
        shape, options = service.detector.shape, service.options
        with service.intake.held.body() as grown:
            body = await read(request, options, grown)
            images, values = await parsed(body, lambda body: tensors.parse(body, length, shape, options))
            del body
        return await _infer(service, images, values)

    for path, shown in (("/v2/models/{name}", True), ("/v2/models/{name}/versions/{version}", False)):
        about, inference = about | {"include_in_schema": shown}, inference | {"include_in_schema": shown}
        app.get(path, summary="Inputs and outputs", **about)(metadata)
        app.get(f"{path}/ready", summary="Whether the model takes requests", **about)(model_ready)
        app.post(f"{path}/infer", summary="Predict, and certify with the parameter eps", **inference)(infer)


def _answers(*statuses: int) -> schema.Responses:
    return schema.content("application/json", _OBJECT, "As the protocol says.", *statuses)


async def _infer(service: Service, images: Tensor, values: dict[str, Any]) -> Response:
    asked, binary = tensors.wanted(values)
    given = values.get("parameters", {}).get("eps")
    eps = None if given is None else intake.radii(given, service.eps, service.options)
    with service.promise(len(images), 0 if eps is None else len(images) * len(eps)):
        found = await service.predicted(images)
        bounds = None if eps is None else await service.bounds(images, eps)
    if eps is not None and bounds is not None:
        found["upper_bound"] = bounds if isinstance(given, list) or len(eps) > 1 else bounds[:, 0]
    arrays = {name: found[name] for name in OUTPUTS if name in found}
    if asked is not None and (unknown := [one.name for one in asked if one.name not in arrays]):
        raise bad(f"there is no output {unknown[0][:40]!r} here: there are {', '.join(arrays)}")
    facts = {"model_name": service.about.name, "model_version": service.fingerprint}
    facts |= {"id": values["id"]} if isinstance(values.get("id"), str) else {}
    return tensors.response(
        facts, arrays, [tensors.Wanted(name, binary) for name in arrays] if asked is None else asked
    )


def _metadata(service: Service) -> dict[str, Any]:
    detector = service.detector
    shapes = {"probabilities": [-1, detector.count]}
    return {
        "name": service.about.name,
        "versions": [service.fingerprint],
        "platform": "prood",
        "inputs": [{"name": tensors.INPUT, "datatype": "FP32", "shape": [-1, *detector.shape]}],
        "outputs": [
            {"name": name, "datatype": tensors.KINDS.get(name, "FP64"), "shape": shapes.get(name, [-1])}
            for name in OUTPUTS
            if name not in _DECIDED or detector.threshold is not None
        ],
    }
