"""The application: routes, the guard around them, errors as one line of JSON."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from prood.detector import Detector
from prood.serve import documentation, kserve, routes
from prood.serve.answer import Refused, answer, refusal
from prood.serve.guard import Guard
from prood.serve.options import About, Options
from prood.serve.service import Service
from prood.version import __version__

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
}
_MISSING = {404: "there is nothing at this address: see /docs", 405: "this address takes another method: see /docs"}


def create_app(detector: Detector, options: Options | None = None, about: About | None = None) -> FastAPI:
    """The service of this detector as an ASGI application; `app.state.service` is what is behind it."""
    service = Service(detector, options or Options(), about or About())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="prood",
        version=__version__,
        description="A classifier that says “I don't know”, with a proof.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    described = [routes.routes(service), kserve.routes(service), routes.health(service), documentation.routes(app)]
    app.router.routes += [Shortcut(route) for router in described for route in router.routes]
    app.router.routes += routes.page_routes(page())
    for router in described:
        app.include_router(router)
    app.add_middleware(
        Guard,
        options=service.options,
        metrics=service.metrics,
        draining=lambda: service.draining,
        count=service.in_flight,
    )
    _answer_errors(app)
    return app


class Shortcut(Route):
    """A handler that takes the request and nothing else, reached directly; FastAPI's own route only describes it.

    FastAPI's way to a handler costs as much time as all the rest of a small prediction.
    """

    def __init__(self, route: BaseRoute) -> None:
        assert isinstance(route, APIRoute)
        super().__init__(route.path, route.endpoint, methods=list(route.methods or ()))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, {**found, "route": self}  # the guard counts by it


def page() -> dict[str, tuple[bytes, str]]:
    """The files of the page by address. They are read once: a request never reaches the disk."""
    folder = files("prood.serve") / "page"
    found: dict[str, tuple[bytes, str]] = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        kind = KINDS.get(file.name.rpartition(".")[2])
        if kind is not None and file.is_file():
            found[f"/{file.name}"] = file.read_bytes(), kind
    if "/index.html" in found:
        found["/"] = found["/index.html"]
    return found


def _answer_errors(app: FastAPI) -> None:
    async def refused(request: Request, error: Any) -> Response:
        return refusal(error)

    async def missing(request: Request, error: Any) -> Response:
        headers = dict(error.headers or {})
        return answer({"error": _MISSING.get(error.status_code, str(error.detail))}, error.status_code, headers)

    async def failed(request: Request, error: Any) -> Response:
        return answer({"error": "the service failed: its log says why"}, 500)

    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, missing)
    app.add_exception_handler(Exception, failed)
