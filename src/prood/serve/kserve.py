"""The inference protocol that KServe, Triton and MLServer share (v2, REST, JSON), for clients that know it already.

Numbers are FP64: a bound that was rounded to FP32 would be none.
"""

import asyncio
import math
from typing import Any

import numpy as np
import torch
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from torch import Tensor

from prood.serve import intake
from prood.serve.answer import Refused, answer, bad
from prood.serve.bodies import INLINE, content_type, parsed_json, read
from prood.serve.kserve_schema import INFER, METADATA, READY, SERVER
from prood.serve.service import Service
from prood.version import __version__

INPUT = "images"
OUTPUTS: tuple[str, ...] = ("label", "probabilities", "confidence", "p_in", "accepted")
TYPES = ("FP32", "UINT8")


def routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v2")

    def known(request: Request) -> None:
        if request.path_params["name"] != service.about.name:
            raise Refused(404, f"there is no such model: this service has {service.about.name}")

    @router.get("", summary="The server", **SERVER)
    async def server(request: Request) -> Response:
        return answer({"name": "prood", "version": __version__, "extensions": []})

    @router.get("/health/live", summary="Whether it serves", **READY)
    async def live(request: Request) -> Response:
        return answer({"live": True})

    @router.get("/health/ready", summary="Whether it takes requests", **READY)
    async def ready(request: Request) -> Response:
        return answer({"ready": not service.draining}, 503 if service.draining else 200)

    @router.get("/models/{name}", summary="Inputs and outputs", **METADATA)
    async def metadata(request: Request) -> Response:
        known(request)
        return answer(_metadata(service))

    @router.get("/models/{name}/ready", summary="Whether the model takes requests", **METADATA)
    async def model_ready(request: Request) -> Response:
        known(request)
        return answer({"name": service.about.name, "ready": not service.draining}, 503 if service.draining else 200)

    @router.post("/models/{name}/infer", summary="Predict, and certify with the parameter eps", **INFER)
    async def infer(request: Request) -> Response:
        known(request)
        if "inference-header-content-length" in request.headers:
            raise bad("the binary extension is not supported: send the tensor as JSON")
        if content_type(request) not in ("application/json", ""):
            raise Refused(415, "send application/json")
        body = await read(request, service.options)
        parse = asyncio.to_thread(_parse, body, service) if len(body) > INLINE else None
        images, values = _parse(body, service) if parse is None else await parse
        return answer(await _infer(service, images, values))

    return router


def _parse(body: bytes, service: Service) -> tuple[Tensor, dict[str, Any]]:
    values = parsed_json(body)
    inputs = values.get("inputs")
    if not (isinstance(inputs, list) and len(inputs) == 1 and isinstance(inputs[0], dict)):
        raise bad(f"there is one input, named {INPUT}: send it and nothing else")
    return tensor(inputs[0], service), values


def tensor(given: dict[str, Any], service: Service) -> Tensor:
    """The input as float32 (N, C, H, W) in [0, 1]."""
    shape, kind, flat = given.get("shape"), given.get("datatype"), given.get("data")
    if given.get("name") != INPUT:
        raise bad(f"there is one input, named {INPUT}")
    if kind not in TYPES:
        raise bad(f"the datatype is one of {', '.join(TYPES)}")
    wanted = service.detector.shape
    if not (isinstance(shape, list) and len(shape) == 4 and all(type(n) is int for n in shape)):
        raise bad(f"the shape is [N, {', '.join(map(str, wanted))}]")
    if tuple(shape[1:]) != wanted or shape[0] < 1:
        raise bad(f"the model takes the shape [N, {', '.join(map(str, wanted))}], and N is 1 or more")
    if shape[0] > service.options.images:
        raise Refused(413, f"{shape[0]} images are too many: {service.options.images} are allowed in one request")
    if not isinstance(flat, list):
        raise bad("data is missing: send the tensor as a JSON list (the binary extension is not supported)")
    try:
        array = np.asarray(flat)
    except ValueError:
        raise bad("data has rows of different lengths") from None
    if array.size != math.prod(shape) or array.dtype.kind not in ("fiu" if kind == "FP32" else "iu"):
        raise bad(f"data is no list of {math.prod(shape)} numbers of the datatype {kind}")
    if array.ndim > 1 and array.shape != tuple(shape):
        raise bad("data is neither flat nor nested as the shape says")
    if kind == "UINT8" and not (array.min() >= 0 and array.max() <= 255):
        raise bad("data of the datatype UINT8 lies between 0 and 255")
    pixels = torch.from_numpy(array.astype(np.float64)).float().reshape(shape)
    return pixels / 255 if kind == "UINT8" else intake.in_range(pixels, INPUT)


async def _infer(service: Service, images: Tensor, values: dict[str, Any]) -> dict[str, Any]:
    parameters = values.get("parameters", {})
    if not isinstance(parameters, dict):
        raise bad("parameters is an object")
    wanted = _wanted(values.get("outputs"))
    given = parameters.get("eps")
    eps = None if given is None else intake.radii(given, service.eps, service.options)
    found = await service.predicted(images)
    arrays = {name: found[name] for name in OUTPUTS if name in found}
    if eps is not None:
        bounds = await service.bounds(images, eps)
        arrays["upper_bound"] = bounds if isinstance(given, list) or len(eps) > 1 else bounds[:, 0]
    if wanted is not None and (unknown := [name for name in wanted if name not in arrays]):
        raise bad(f"there is no output {str(unknown[0])[:40]!r} here: there are {', '.join(arrays)}")
    outputs = [_output(name, arrays[name]) for name in (arrays if wanted is None else wanted)]
    answered = {"model_name": service.about.name, "outputs": outputs}
    if isinstance(identity := values.get("id"), str):
        answered["id"] = identity
    return answered


def _wanted(outputs: Any) -> list[str] | None:
    if outputs is None or outputs == []:
        return None
    if not isinstance(outputs, list) or not all(isinstance(one, dict) and "name" in one for one in outputs):
        raise bad("outputs is a list of objects with a name")
    if any(isinstance(given := one.get("parameters"), dict) and given.get("binary_data") for one in outputs):
        raise bad("the binary extension is not supported: ask for JSON, binary_data false")
    return list(dict.fromkeys(str(one["name"]) for one in outputs))


def _output(name: str, array: np.ndarray) -> dict[str, Any]:
    kind = {"b": "BOOL", "i": "INT64"}.get(array.dtype.kind, "FP64")
    return {"name": name, "shape": list(array.shape), "datatype": kind, "data": array.reshape(-1).tolist()}


def _metadata(service: Service) -> dict[str, Any]:
    count = service.detector.count
    outputs = [("label", "INT64", [-1]), ("probabilities", "FP64", [-1, count]), ("confidence", "FP64", [-1])]
    outputs += [("p_in", "FP64", [-1])]
    if service.detector.threshold is not None:
        outputs.append(("accepted", "BOOL", [-1]))
    outputs.append(("upper_bound", "FP64", [-1]))
    return {
        "name": service.about.name,
        "versions": ["1"],
        "platform": "prood",
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, *service.detector.shape]}],
        "outputs": [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in outputs],
    }
