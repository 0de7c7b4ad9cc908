"""The repository extension of the inference protocol: which models there are, and loading and unloading them.

A model is read again from where it was read at the start. A request names no path, so whoever has the admin token can
replace what is served by what lies in a folder, and by nothing else.
"""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from prood.serve import schema
from prood.serve.answer import answer
from prood.serve.service import Service

_INDEX = schema.content("application/json", {"type": "array"}, "Each model: name, version, state.", 403)
_DONE = schema.named(
    "name", "prood", "model", schema.content("application/json", {"type": "object"}, "Done.", 403, 503)
)


def add(app: FastAPI, service: Service) -> None:
    house = service.house

    @app.post("/v2/repository/index", summary="All models", responses=_INDEX)
    async def index(request: Request) -> Response:
        return answer(house.index())

    @app.post("/v2/repository/models/{name}/load", summary="Read a model again, and serve that", **_DONE)
    async def load(request: Request) -> Response:
        model = await house.load(request.path_params["name"])
        return answer({"name": model.service.about.name, "version": model.service.fingerprint})

    @app.post("/v2/repository/models/{name}/unload", summary="Serve a model no longer", **_DONE)
    async def unload(request: Request) -> Response:
        house.unload(request.path_params["name"])
        return answer({"name": request.path_params["name"]})
