"""What the models of a process share, and which request goes to which: they come and go without one being dropped."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from prood.detector import Detector
from prood.errors import ProodError
from prood.serve.answer import Refused, bad
from prood.serve.batching import Turns
from prood.serve.bodies import Held
from prood.serve.intake import Room
from prood.serve.metrics import Metrics
from prood.serve.options import About, Options
from prood.serve.service import Service
from prood.serve.watching import Watch

END_S = 1.0
"""For the passes that are running when the service ends."""
Source = Callable[[], tuple[Detector, About]]
log = logging.getLogger("prood.serve")


@dataclass(eq=False)
class Model:
    """A service, the application before it, and how many requests it works on."""

    service: Service
    app: ASGIApp
    users: int = 0
    retired: bool = False


class House:
    """The models of a process by name. Requests that name none go to the first.

    `sources` say how each is read (again), and `build` makes an application of a service. Budgets of memory, the turns
    at the processor and the metrics are those of all models together.
    """

    def __init__(self, options: Options, build: Callable[[Service], ASGIApp]) -> None:
        self.options, self._build = options, build
        self.held = Held(options.held_bytes, lambda seconds: self.metrics.stages.labels("receive").observe(seconds))
        self.room, self.turns = Room(options.decoding_bytes), Turns()
        self.draining, self.ended, self.in_flight = False, True, 0
        self.sources: dict[str, Source] = {}
        self.models: dict[str, Model] = {}
        self.watch = Watch(options)
        self._one, self._tasks = asyncio.Lock(), set[asyncio.Task[Any]]()
        self.metrics = Metrics(
            {
                "prood_queue_rows": ("Images or balls that wait.", self._each(lambda one: one.batcher.waiting)),
                "prood_queue_seconds": ("Accepted work, in seconds.", self._each(lambda one: one.batcher.promised)),
                "prood_attacks": ("Attacks that run or wait.", self._each(lambda one: len(one.attacks.running))),
                "prood_held_bytes": ("Bytes of long bodies in memory.", lambda: {None: self.held.bytes}),
                "prood_requests_in_flight": ("Requests being worked on.", lambda: {None: self.in_flight}),
                "prood_ready": ("1 if it takes requests.", lambda: {None: float(self.ready)}),
                **self.watch.gauges,
            }
        )

    def _each(self, read: Callable[[Service], float]) -> Callable[[], Mapping[str | None, float]]:
        return lambda: {name: read(one.service) for name, one in self.models.items()}

    @property
    def status(self) -> str:
        stuck = any(one.service.batcher.stuck for one in self.models.values())
        return "draining" if self.draining else "stuck" if stuck else "ok" if self.models else "empty"

    @property
    def ready(self) -> bool:
        return self.status == "ok"

    def add(self, detector: Detector, about: About) -> Model:
        """Serve this model from now on; what it replaces finishes what it works on."""
        return self._enter(self._made(detector, about))

    def _made(self, detector: Detector, about: About) -> Model:
        service = Service(detector, about, self)
        return Model(service, self._build(service))

    def _enter(self, model: Model) -> Model:
        name = model.service.about.name
        before = self.models.get(name)
        self.watch.over(model.service, None if before is None else before.service)
        self.models[name] = model
        if before is not None:
            self._retire(before)
        return model

    def model(self, name: str | None) -> Model:
        if name is None and self.models:
            return next(iter(self.models.values()))
        if name is None or name not in self.models:
            known = ", ".join(self.models) or "none at the moment"
            raise Refused(404, f"there is no such model: this service has {known}")
        return self.models[name]

    @contextmanager
    def using(self, name: str | None) -> Iterator[Model]:
        """A model that stays until the block ends, whatever takes its place."""
        model = self.model(name)
        model.users += 1
        try:
            yield model
        finally:
            model.users -= 1
            if model.retired and not model.users:
                self._end(model)

    async def load(self, name: str) -> Model:
        """Read a model again from where it was first read, and serve that; where this fails, the old one stays.

        It goes on to its end, also where nobody waits for it any more.
        """
        task = asyncio.ensure_future(self._load(name))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def _load(self, name: str) -> Model:
        if name not in self.sources:
            raise Refused(404, f"there is no such model: this service knows {', '.join(self.sources) or 'none'}")
        async with self._one:
            model = None
            try:
                model = self._made(*await asyncio.to_thread(self.sources[name]))
                await model.service.warm()
                self._enter(model)
            except (ProodError, OSError) as error:
                if model is not None:
                    self._end(model)
                raise bad(f"{name} was not loaded, and what was served stays: {error}") from None
            log.info("loaded %s, %s", name, model.service.fingerprint)
            return model

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has heard of it

    async def load_all(self) -> None:
        """What SIGHUP asks for."""
        for name in [name for name in self.sources if name in self.models]:
            try:
                await self.load(name)
            except ProodError as error:
                log.error("%s", error)

    def unload(self, name: str) -> None:
        model = self.model(name)
        if len(self.models) == 1:
            raise bad(f"{name} is the only model: end the service instead")
        del self.models[name]
        self.watch.leave(model.service)
        self._retire(model)
        log.info("unloaded %s", name)

    def index(self) -> list[dict[str, str]]:
        """The repository: every model that was named at the start, and what became of it."""
        found = []
        for name in {**self.models, **self.sources}:
            there = self.models.get(name)
            version = {} if there is None else {"version": there.service.fingerprint}
            found.append({"name": name, **version, "state": "UNAVAILABLE" if there is None else "READY", "reason": ""})
        return found

    def _retire(self, model: Model) -> None:
        model.retired = True
        if not model.users:
            self._end(model)

    def _end(self, model: Model) -> None:
        task = asyncio.ensure_future(asyncio.to_thread(model.service.close))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def start(self) -> None:
        for model in self.models.values():
            await model.service.warm()
        self.watch.start()

    async def stop(self) -> None:
        """The orderly end: what is in flight was told to end, and what the threads compute right now is left."""
        for _ in range(100):
            if not self.in_flight:
                break
            await asyncio.sleep(END_S / 100)
        services = [model.service for model in self.models.values()]
        ended = await asyncio.gather(*(asyncio.to_thread(one.close, END_S) for one in services))
        self.ended = all(ended)
        await self.watch.stop()
