"""The application: the addresses of /v1 and the others, the guard around them, errors as one line of JSON."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from prood.detector import Detector
from prood.serve import intake, kserve, schema
from prood.serve.answer import Lines, Refused, answer, last, refusal
from prood.serve.attacking import TARGETS
from prood.serve.guard import Guard
from prood.serve.options import About, Options
from prood.serve.service import Service
from prood.serve.work import HOW
from prood.version import __version__

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_MISSING = {404: "there is nothing at this address: see /docs", 405: "this address takes another method: see /docs"}


def create_app(detector: Detector, options: Options | None = None, about: About | None = None) -> FastAPI:
    """The service of this detector as an ASGI application; `app.state.service` is what is behind it."""
    service = Service(detector, options or Options(), about or About())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.warm()
        yield
        await service.stop()

    app = FastAPI(
        title="prood",
        version=__version__,
        description="A classifier that says “I don't know”, with a proof.",
        lifespan=lifespan,
        exception_handlers={Refused: _refused, HTTPException: _missing, Exception: _failed},
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    add_own(app, service)
    kserve.add(app, service)
    add_others(app, service)
    described = [route for route in app.router.routes if isinstance(route, APIRoute)]
    shortcuts = [Shortcut(one.path, one.endpoint, methods=list(one.methods or ())) for one in described]
    app.router.routes[:0] = [*shortcuts, *page()]
    app.add_middleware(Guard, service=service)
    return app


class Shortcut(Route):
    """A handler that takes the request and nothing else, reached directly; FastAPI's own route only describes it.

    FastAPI's way to a handler costs as much time as all the rest of a small prediction.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, {**found, "route": self}  # the guard counts by it


async def _refused(request: Request, error: Any) -> Response:
    return refusal(error)


async def _missing(request: Request, error: Any) -> Response:
    return answer({"error": _MISSING.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return answer({"error": "the service failed: its log says why"}, 500)


def add_own(app: FastAPI, service: Service) -> None:
    options, detector = service.options, service.detector
    take = service.intake
    common = {"model": service.about.name, "threshold": detector.threshold}
    post = partial(schema.post, options)

    @app.get("/v1/model", summary="What is served", responses=schema.responses(schema.Model))
    async def model(request: Request) -> Response:
        return answer(service.model())

    @app.post("/v1/predict", **post("Label, confidence and whether it is accepted", schema.Predictions))
    async def predict(request: Request) -> Response:
        images, _ = await take.images(request)
        return answer({"predictions": await service.predict(images), **common})

    @app.post("/v1/certify", **post("A bound of the confidence in whole balls", schema.Certificates, "eps", "radius"))
    async def certify(request: Request) -> Response:
        images, given = await take.images(request, "eps", "radius")
        eps = intake.radii(given.get("eps"), service.eps, options)
        found = await service.certify(images, eps, search=intake.switch(given.get("radius"), "radius"))
        return answer({"eps": eps, "certificates": found, **HOW, **common})

    asked = ("eps", "steps", "on", "stream")

    @app.post("/v1/attack", **post("Try to raise the confidence", schema.Attack, *asked, one=True))
    async def attack(request: Request) -> Response:
        images, given = await take.images(request, *asked, one=True)
        on = intake.one_of(given.get("on"), "on", TARGETS)
        stream = intake.switch(given.get("stream", False), "stream")
        steps = intake.steps(given.get("steps"), options)
        events = service.attack(images[0], intake.radius(given.get("eps"), service.eps, options), steps, on)
        return Lines(events) if stream else answer(await last(events))

    @app.post("/v1/certificate", **post("A file for prood verify", schema.Line, "eps", "name", one=True))
    async def certificate(request: Request) -> Response:
        images, given = await take.images(request, "eps", "name", one=True)
        name = intake.file_name(given.get("name"))
        line = await service.certificate(images[0], intake.radius(given.get("eps"), service.eps, options), name)
        headers = {"content-disposition": 'attachment; filename="certificate.jsonl"'}
        return Response(f"{line}\n", media_type="application/json", headers=headers)

    @app.post("/v1/far", **post("Away from all data", schema.Far, "factors", one=True))
    async def far(request: Request) -> Response:
        images, given = await take.images(request, "factors", one=True)
        return answer(await service.far(images[0], intake.factors(given.get("factors"), options)))

    @app.get("/v1/examples", summary="Pictures to try", responses=schema.responses(list[schema.Example]))
    async def examples(request: Request) -> Response:
        found = enumerate(await service.examples())
        url = "/v1/examples/{}.png".format
        return answer([{"name": one.name, "kind": one.kind, "url": url(i), "how": one.how} for i, one in found])

    of_png = schema.content("image/png", schema.BINARY, "A PNG.")

    @app.get("/v1/examples/{place}.png", summary="One of them", **schema.named("place", "0", "example", of_png))
    async def example(request: Request) -> Response:
        place, found = request.path_params["place"], await service.examples()
        if not (place.isdecimal() and len(place) < 4 and int(place) < len(found)):
            raise Refused(404, "there is no such example: see /v1/examples")
        return Response(found[int(place)].png, media_type="image/png")


def add_others(app: FastAPI, service: Service) -> None:
    status = {"type": "object", "properties": {"status": {"type": "string"}}}

    @app.get("/healthz", summary="Whether it serves", responses=schema.healthy(status, "It serves."))
    async def healthz(request: Request) -> Response:
        return answer({"status": service.status}, 200 if service.ready else 503)

    of_text = schema.content("text/plain", {"type": "string"}, "Prometheus text.")

    @app.get("/metrics", summary="For Prometheus", responses=of_text)
    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return answer(app.openapi())

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return Response(schema.page(app.openapi()), media_type="text/html")


def page() -> list[Route]:
    """The files of the page at their addresses. They are read once: a request never reaches the disk."""
    found = {
        file.name: Response(file.read_bytes(), media_type=KINDS[kind])
        for file in (files("prood.serve") / "page").iterdir()
        if (kind := file.name.rpartition(".")[2]) in KINDS
    }
    found[""] = found["index.html"]
    return [Route(f"/{name}", content, methods=["GET"]) for name, content in found.items()]
