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
from prood.models import Gated
from prood.models.confidence import logistic
from prood.serve.answer import bad, busy
from prood.serve.batching import Arrays, Batcher, Turns
from prood.serve.examples import Example, examples
from prood.serve.metrics import Metrics
from prood.serve.options import About, Options
from prood.serve.pictures import data_url
from prood.serve.work import HOW, Stopped, attack, lanes
from prood.version import __version__

_LIMITS = ("body_bytes", "pixels", "images", "radii", "attack_steps")


class Service:
    """Made once for an application; `close` finishes what was accepted."""

    def __init__(self, detector: Detector, options: Options, about: About) -> None:
        self.detector, self.options, self.about = detector, options, about
        # A certificate is for this radius where the request names none.
        self.eps = 0.01 if about.eps is None else about.eps
        self.draining = False
        self.in_flight = 0  # counted by the guard
        self.turns = Turns()
        self.metrics = Metrics(
            {
                "prood_queue_rows": ("Images or balls that wait.", lambda: self.batcher.waiting),
                "prood_requests_in_flight": ("Requests being worked on.", lambda: self.in_flight),
                "prood_attacks": ("Attacks that run or wait.", lambda: len(self._attacks)),
            }
        )
        self.batcher = Batcher(lanes(detector), options, self.turns, self.metrics.rows.observe)
        self._attacks: set[threading.Event] = set()  # each is set to end its attack
        self._attacker = ThreadPoolExecutor(1, "prood-attack")
        self._examples: asyncio.Task[list[Example]] | None = None

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
            "gated": isinstance(detector.model, Gated),
            "p_in_threshold": detector.p_in_threshold,
            "accept": detector.accept,
            "level": None if calibration is None else calibration.level,
            "provable": detector.provable,
            "price": [dict(point) for point in self.about.price],
            "tpr": detector.accept,
            "confidence_level": None if calibration is None else calibration.level,
            "eps": self.eps,
            "ceiling": detector.joint().ceiling(detector.count),
            "p_in_ceiling": logistic(detector.discriminator.ceiling + detector.shift),
            "floor": 1 / detector.count,
            "method": HOW["method"],
            "limits": {name: getattr(options, name) for name in _LIMITS},
            "version": __version__,
        }

    async def predict(self, images: Tensor) -> list[dict[str, Any]]:
        return self._answers(await self.predicted(images), "p_value", "probabilities")

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
            self.predicted(images), self.bounds(images, eps), self._reach(images, search)
        )
        rule = self.detector.rule
        decided = rule.threshold is not None
        radii = rule.reach(reach, bounds, eps) if decided else reach
        found["upper_bound"] = bounds
        found["rejected"] = rule.rejects(bounds) if decided else np.full(bounds.shape, None)
        found["radius"] = np.where(np.isnan(radii), np.array(None), radii)
        return self._answers(found, "upper_bound", "rejected", "radius")

    async def _reach(self, images: Tensor, search: bool) -> np.ndarray:
        if self.detector.threshold is None or not search:
            return np.full(len(images), math.nan)
        return (await self.batcher.run("radius", images))["radius"]

    def _answers(self, found: Arrays, *more: str) -> list[dict[str, Any]]:
        """For each image what the arrays say of it, and None where there is no array: without a threshold, say."""
        lists: dict[str, list[Any]] = {key: values.tolist() for key, values in found.items()}
        lists["name"] = [self.detector.classes[label] for label in lists["label"]]
        keys = ("label", "name", "confidence", "p_in", "accepted", "reason", *more)
        columns = [lists.get(key, [None] * len(lists["name"])) for key in keys]
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]

    async def attack(self, image: Tensor, eps: float, steps: int, gone: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        """What an attack of so many steps finds; it ends once `gone` comes, for then nobody waits for it."""
        if len(self._attacks) >= self.options.attacks:
            raise busy("other attacks are waiting")
        stop = threading.Event()
        self._attacks.add(stop)
        left = asyncio.ensure_future(gone())
        left.add_done_callback(lambda _: stop.set())
        try:
            arguments = (self.detector, image, eps, steps, self.turns, stop)
            found = await asyncio.get_running_loop().run_in_executor(self._attacker, attack, *arguments)
        except Stopped:
            raise bad("the connection was closed before the attack was done") from None
        except ProodError as error:  # a classifier without gradients, say: no failure of the service
            raise bad(str(error)) from None
        finally:
            stop.set()  # also where the request is cancelled: nobody waits for it any more
            left.cancel()
            self._attacks.remove(stop)
        rule, best = self.detector.rule, found.confidence[-1]
        return {
            "eps": eps,
            "confidence": found.confidence,
            "found": best,
            "upper_bound": found.upper_bound,
            "clean": found.confidence[0],
            "accepted": None if rule.threshold is None else bool(rule.accepts(best)),
            "reason": found.reason,
            "image": data_url(found.image),
            "original": data_url(image),
            "passes": found.passes,
        }

    async def far(self, image: Tensor, factors: list[float]) -> dict[str, Any]:
        """The scaled images 0.5 + α(x − 0.5), without clipping: far away the confidence goes to 1/K."""
        scale = torch.tensor(factors, dtype=torch.float32).view(-1, 1, 1, 1)
        found = await self.batcher.run("far", 0.5 + scale * (image - 0.5))
        if not all(np.isfinite(values).all() for values in found.values()):
            raise bad("the network overflows so far away: choose smaller factors")
        said = {key: values.tolist() for key, values in found.items()}
        return {"factors": factors, **said, "floor": 1 / self.detector.count}

    async def examples(self) -> list[Example]:
        """Drawn once, in a thread: reading the image sets takes a second or two."""
        if self._examples is None:
            work = asyncio.to_thread(examples, self.detector.shape, self.about.inside)
            self._examples = asyncio.ensure_future(work)
        return await asyncio.shield(self._examples)

    def close(self) -> None:
        self.draining = True
        for stop in list(self._attacks):  # of attacks that outlasted the time to finish
            stop.set()
        self._attacker.shutdown()
        self.batcher.close()
