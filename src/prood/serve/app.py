"""The application: the addresses of /v1 and the others, the guard around them, errors as one line of JSON."""

import re
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from prood.detector import Detector
from prood.serve import intake, kserve, manual, repository, schema
from prood.serve.answer import Lines, Refused, answer, last, refusal
from prood.serve.attacking import TARGETS
from prood.serve.guard import Guard
from prood.serve.house import House
from prood.serve.metrics import CONTENT_TYPE
from prood.serve.options import About, Options
from prood.serve.service import Service
from prood.serve.work import HOW
from prood.version import __version__

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_NAMED = re.compile(r"/v2/models/(?P<name>[^/]+)(/.*)?|/models/(?P<other>[^/]+)(?P<own>/v1/.+)", re.DOTALL)
_MISSING = {404: "there is nothing at this address: see /docs", 405: "this address takes another method: see /docs"}


class Application:
    """ASGI: every request goes through the guard, and then to the application of the model that it names.

    /v2/models/NAME/… and /models/NAME/v1/… name one, everything else is for the first.
    """

    def __init__(self, options: Options) -> None:
        self.house = House(options, model_app)
        self._guarded = Guard(self._handed_on, self.house)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await self.house.start()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.house.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
        found = _NAMED.fullmatch(scope["path"])
        if found is not None:
            scope.setdefault("state", {})["model"] = found["name"] or found["other"]
            scope["path"] = found["own"] or scope["path"]
        await self._guarded(scope, receive, send)

    async def _handed_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self.house.using(scope["state"].get("model")) as model:
                await model.app(scope, receive, send)
        except Refused as refused:  # there is no such model
            await refusal(refused)(scope, receive, send)


def create_app(detector: Detector, options: Options | None = None, about: About | None = None) -> Application:
    """The service of this detector as an ASGI application; `app.house` is what is behind it."""
    app = Application(options or Options())
    app.house.add(detector, about or About())
    return app


def model_app(service: Service) -> FastAPI:
    """The addresses of one model."""
    app = FastAPI(
        title="prood",
        version=__version__,
        description="A classifier that says “I don't know”, with a proof.",
        exception_handlers={Refused: _refused, HTTPException: _missing, Exception: _failed},
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    add_own(app, service)
    kserve.add(app, service)
    repository.add(app, service)
    add_others(app, service)
    described = [route for route in app.router.routes if isinstance(route, APIRoute)]
    shortcuts = [Shortcut(one.path, one.endpoint, methods=list(one.methods or ())) for one in described]
    app.router.routes[:0] = [*shortcuts, *page()]
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
    common = {"model": service.about.name, "fingerprint": service.fingerprint, "threshold": detector.threshold}
    post = partial(schema.post, options)

    @app.get("/v1/model", summary="What is served", responses=schema.responses(schema.Model))
    async def model(request: Request) -> Response:
        return answer(service.model())

    @app.get(
        "/v1/monitor", summary="Whether arrivals look like calibration", responses=schema.responses(schema.Watched)
    )
    async def monitor(request: Request) -> Response:
        return answer({"model": service.about.name, "monitor": service.house.watch.standing(service)})

    @app.post("/v1/predict", **post("Label, confidence and whether it is accepted", schema.Predictions, "watch"))
    async def predict(request: Request) -> Response:
        images, given = await take.images(request, "watch")
        found = await service.predict(images, watch=intake.switch(given.get("watch"), "watch"))
        return answer({"predictions": found, **common})

    balls = ("eps", "radius", "watch")

    @app.post("/v1/certify", **post("A bound of the confidence in whole balls", schema.Certificates, *balls))
    async def certify(request: Request) -> Response:
        images, given = await take.images(request, *balls)
        eps = intake.radii(given.get("eps"), service.eps, options)
        search, watch = (intake.switch(given.get(name), name) for name in ("radius", "watch"))
        found = await service.certify(images, eps, search=search, watch=watch)
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
        house = service.house
        return answer({"status": house.status}, 200 if house.ready else 503)

    of_text = schema.content("text/plain", {"type": "string"}, "Prometheus text.")

    @app.get("/metrics", summary="For Prometheus", responses=of_text)
    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return answer(app.openapi())

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return Response(manual.page(app.openapi()), media_type="text/html")


def page() -> list[Route]:
    """The files of the page at their addresses. They are read once: a request never reaches the disk."""
    found = {
        file.name: Response(file.read_bytes(), media_type=KINDS[kind])
        for file in (files("prood.serve") / "page").iterdir()
        if (kind := file.name.rpartition(".")[2]) in KINDS
    }
    found[""] = found["index.html"]
    return [Route(f"/{name}", content, methods=["GET"]) for name, content in found.items()]
