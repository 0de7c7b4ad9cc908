"""The service without HTTP: a detector, its queue, and the answers as plain values."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prood.detector import Detector
from prood.errors import ProodError
from prood.serve.answer import bad, busy
from prood.serve.attack import Stopped, attack
from prood.serve.batching import Arrays, Batcher, Turns
from prood.serve.examples import Example, data_url, draw
from prood.serve.metrics import Metrics
from prood.serve.options import RADIUS, About, Options
from prood.serve.work import METHOD, NORM, lanes
from prood.version import __version__


class Service:
    """Made once for an application; `close` finishes what was accepted."""

    def __init__(self, detector: Detector, options: Options, about: About) -> None:
        self.detector, self.options, self.about = detector, options, about
        self.draining = False
        self.in_flight = [0]  # counted by the guard
        self.turns = Turns()
        self.metrics = Metrics(
            {
                "prood_queue_rows": ("Images or balls that wait.", lambda: self.batcher.waiting),
                "prood_requests_in_flight": ("Requests being worked on.", lambda: self.in_flight[0]),
                "prood_attacks": ("Attacks that run or wait.", lambda: self._attacks),
            }
        )
        self.batcher = Batcher(
            lanes(detector),
            batch=options.batch,
            wait_ms=options.wait_ms,
            queue=options.queue,
            turns=self.turns,
            watch=lambda lane, rows: self.metrics.rows.observe(lane, rows),
        )
        self._attacks = 0
        self._stops: set[threading.Event] = set()
        self._attacker = ThreadPoolExecutor(1, "prood-attack")
        self._examples: asyncio.Task[list[Example]] | None = None

    @property
    def eps(self) -> float:
        return RADIUS if self.about.eps is None else self.about.eps

    def model(self) -> dict[str, Any]:
        """What /v1/model says."""
        detector, options = self.detector, self.options
        calibration = detector.calibration
        return {
            "name": self.about.name,
            "classes": list(detector.classes),
            "image": list(detector.shape),
            "shift": detector.shift,
            "threshold": detector.threshold,
            "tpr": detector.tpr,
            "confidence_level": None if calibration is None else calibration.confidence,
            "eps": self.eps,
            "ceiling": detector.joint().ceiling(detector.count),
            "floor": 1 / detector.count,
            "method": METHOD,
            "limits": {
                "body_bytes": options.body_bytes,
                "pixels": options.pixels,
                "images": options.images,
                "radii": options.radii,
                "attack_steps": options.attack_steps,
            },
            "version": __version__,
        }

    async def predict(self, images: Tensor) -> list[dict[str, Any]]:
        found = await self.predicted(images)
        return [self._answer(found, place, full=True) for place in range(len(images))]

    async def predicted(self, images: Tensor) -> Arrays:
        found = await self.batcher.run("predict", images)
        if "accepted" in found:
            accepted = int(found["accepted"].sum())
            self.metrics.images.add("accepted", count=accepted)
            self.metrics.images.add("rejected", count=len(images) - accepted)
        else:
            self.metrics.images.add("undecided", count=len(images))
        return found

    async def bounds(self, images: Tensor, eps: list[float]) -> np.ndarray:
        """The certified confidence of each image at each radius, (N, R)."""
        rows = images.repeat_interleave(len(eps), 0)
        numbers = torch.tensor(eps, dtype=torch.float64).repeat(len(images))
        found = await self.batcher.run("bound", rows, numbers)
        return self.detector.nested(found["upper_bound"].reshape(len(images), len(eps)), eps)

    async def certify(self, images: Tensor, eps: list[float], *, search: bool = True) -> list[dict[str, Any]]:
        """Bounds, and the certified radius; without the search for it, the largest of these radii that is one."""
        found, bounds, reach = await asyncio.gather(
            self.predicted(images), self.bounds(images, eps), self._reach(images if search else images[:0])
        )
        return [
            self._certificate(bounds[place], eps, float(reach[place]) if len(reach) else math.nan)
            | self._answer(found, place, full=False)
            for place in range(len(images))
        ]

    async def _reach(self, images: Tensor) -> np.ndarray:
        if self.detector.threshold is None or not len(images):
            return np.zeros(0)
        return (await self.batcher.run("radius", images))["radius"]

    async def attack(self, image: Tensor, eps: float, steps: int, gone: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        """What an attack of so many steps finds; it ends once `gone` comes, for then nobody waits for it."""
        if self._attacks >= self.options.attacks:
            raise busy("other attacks are waiting")
        stop = threading.Event()
        self._attacks += 1
        self._stops.add(stop)
        left = asyncio.ensure_future(gone())
        left.add_done_callback(lambda _: stop.set())
        try:
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._attacker, attack, self.detector, image, eps, steps, self.turns, stop)
            found = await work
        except Stopped:
            raise bad("the connection was closed before the attack was done") from None
        except ProodError as error:  # a classifier without gradients, say: no failure of the service
            raise bad(str(error)) from None
        finally:
            stop.set()  # also where the request is cancelled: nobody waits for it any more
            left.cancel()
            self._attacks -= 1
            self._stops.discard(stop)
        rule, best = self.detector.rule, found.confidence[-1]
        return {
            "eps": eps,
            "confidence": found.confidence,
            "found": best,
            "upper_bound": found.upper_bound,
            "clean": found.confidence[0],
            "accepted": None if rule.threshold is None else bool(rule.accepts(best)),
            "image": data_url(found.image),
            "original": data_url(image),
            "passes": found.passes,
        }

    async def far(self, image: Tensor, factors: list[float]) -> dict[str, Any]:
        """The scaled images 0.5 + α(x − 0.5), without clipping: far away the confidence goes to 1/K."""
        scale = torch.tensor(factors, dtype=torch.float32).view(-1, 1, 1, 1)
        found = await self.batcher.run("far", 0.5 + scale * (image - 0.5))
        if not (np.isfinite(found["confidence"]).all() and np.isfinite(found["p_in"]).all()):
            raise bad("the network overflows so far away: choose smaller factors")
        return {
            "factors": factors,
            "confidence": found["confidence"].tolist(),
            "p_in": found["p_in"].tolist(),
            "floor": 1 / self.detector.count,
        }

    async def examples(self) -> list[Example]:
        """Drawn once, in a thread: reading the image sets takes a second or two."""
        if self._examples is None:
            work = asyncio.to_thread(draw, self.detector.shape, self.about.inside)
            self._examples = asyncio.ensure_future(work)
        return await asyncio.shield(self._examples)

    def close(self) -> None:
        self.draining = True
        for stop in list(self._stops):  # of attacks that outlasted the time to finish
            stop.set()
        self._attacker.shutdown()
        self.batcher.close()

    def _certificate(self, bounds: np.ndarray, eps: list[float], reach: float) -> dict[str, Any]:
        rule = self.detector.rule
        if rule.threshold is None:
            return {"upper_bound": bounds.tolist(), "rejected": [None] * len(eps), "radius": None}
        radius = float(rule.reach(np.array([reach]), bounds[None], eps)[0])
        known = None if math.isnan(radius) else radius
        return {"upper_bound": bounds.tolist(), "rejected": rule.rejects(bounds).tolist(), "radius": known}

    def _answer(self, found: Arrays, place: int, *, full: bool) -> dict[str, Any]:
        label = int(found["label"][place])
        answer = {
            "label": label,
            "name": self.detector.classes[label],
            "confidence": float(found["confidence"][place]),
            "p_in": float(found["p_in"][place]),
            "accepted": bool(found["accepted"][place]) if "accepted" in found else None,
        }
        if full:
            answer["p_value"] = float(found["p_value"][place]) if "p_value" in found else None
            answer["probabilities"] = found["probabilities"][place].tolist()
        return answer


NAMES = {"method": METHOD, "norm": NORM}
