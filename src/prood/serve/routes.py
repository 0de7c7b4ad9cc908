"""The service's own addresses, /v1."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from prood.serve import intake, schema
from prood.serve.answer import Refused, answer, bad
from prood.serve.bodies import asked
from prood.serve.service import NAMES, Service

Handler = Callable[[Request], Awaitable[Response]]


def routes(service: Service) -> APIRouter:
    options, detector = service.options, service.detector
    take = intake.Intake(detector.shape, options)
    common = {"model": service.about.name, "threshold": detector.threshold}
    router = APIRouter(prefix="/v1")

    @router.get("/model", summary="What is served", responses=schema.responses(schema.Model))
    async def model(request: Request) -> Response:
        return answer(service.model())

    @router.post(
        "/predict", summary="Label, confidence and whether it is accepted", **schema.post(schema.Predictions, options)
    )
    async def predict(request: Request) -> Response:
        images = await take.images(await asked(request, options, ()))
        return answer({"predictions": await service.predict(images), **common})

    @router.post(
        "/certify",
        summary="A bound of the confidence in whole balls",
        **schema.post(schema.Certificates, options, "eps", "radius"),
    )
    async def certify(request: Request) -> Response:
        sent = await asked(request, options, ("eps", "radius"))
        eps = intake.radii(sent.options.get("eps"), service.eps, options)
        search = intake.switch(sent.options.get("radius"), "radius")
        images = await take.images(sent)
        found = await service.certify(images, eps, search=search)
        return answer({"eps": eps, "certificates": found, **NAMES, **common})

    @router.post(
        "/attack",
        summary="Try to raise the confidence",
        **schema.post(schema.Attack, options, "one eps", "steps", one=True),
    )
    async def attack(request: Request) -> Response:
        sent = await asked(request, options, ("eps", "steps"))
        eps = intake.radii(sent.options.get("eps"), service.eps, options)
        if len(eps) != 1:
            raise bad("an attack has one radius: give one eps")
        steps = intake.steps(sent.options.get("steps"), options)
        images = await take.images(sent, one=True)
        # Once the body is read, all that still comes is that the client has gone.
        return answer(await service.attack(images[0], eps[0], steps, request.receive))

    @router.post("/far", summary="Away from all data", **schema.post(schema.Far, options, "factors", one=True))
    async def far(request: Request) -> Response:
        sent = await asked(request, options, ("factors",))
        factors = intake.factors(sent.options.get("factors"), options)
        images = await take.images(sent, one=True)
        return answer(await service.far(images[0], factors))

    @router.get("/examples", summary="Pictures to try", responses=schema.responses(list[schema.Example]))
    async def examples(request: Request) -> Response:
        found = await service.examples()
        return answer(
            [{"name": one.name, "kind": one.kind, "url": f"/v1/examples/{i}.png"} for i, one in enumerate(found)]
        )

    @router.get("/examples/{place}.png", summary="One of them", **schema.png())
    async def example(request: Request) -> Response:
        place, found = request.path_params["place"], await service.examples()
        if not (place.isdecimal() and len(place) < 4 and int(place) < len(found)):
            raise Refused(404, "there is no such example: see /v1/examples")
        return Response(found[int(place)].png, media_type="image/png")

    return router


def page_routes(files: dict[str, tuple[bytes, str]]) -> list[Route]:
    """The page's files, as they were when the service started."""

    def serve_file(content: bytes, kind: str) -> Handler:
        async def handler(request: Request) -> Response:
            return Response(content, media_type=kind)

        return handler

    return [Route(path, serve_file(content, kind), methods=["GET"]) for path, (content, kind) in files.items()]


def health(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", summary="Whether it serves", responses=schema.healthy())
    async def healthz(request: Request) -> Response:
        return answer({"status": "draining"}, 503) if service.draining else answer({"status": "ok"})

    @router.get("/metrics", summary="For Prometheus", **schema.text())
    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    return router
