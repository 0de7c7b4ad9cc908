"""The service without HTTP: a detector, its queue, and the answers as plain values."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from prood.bounds.radius import radius_search
from prood.detector import Detector, Monitor, Prediction
from prood.errors import ProodError, first_line
from prood.models import Gated, fingerprint
from prood.models.confidence import confidence_of, logistic, threshold_at
from prood.serve.answer import Refused, bad
from prood.serve.attacking import Asked, Attacks, Target
from prood.serve.batching import Arrays, Batcher
from prood.serve.examples import Example, examples, own_kind
from prood.serve.intake import Intake
from prood.serve.options import About
from prood.serve.work import HOW, lanes
from prood.version import __version__

if TYPE_CHECKING:
    from prood.serve.house import House

SEARCH = 22
"""Bounds that the search for the radius of an image takes at most."""
log = logging.getLogger("prood.serve")

_LIMITS = ("body_bytes", "pixels", "images", "radii", "attack_steps")


class Service:
    """One model of the house; `close` finishes what was accepted."""

    def __init__(self, detector: Detector, about: About, house: "House") -> None:
        self.detector, self.about, self.house, self.options = detector, about, house, house.options
        self.fingerprint = fingerprint(detector.model)
        # A certificate is for this radius where the request names none.
        self.eps = 0.01 if about.eps is None else about.eps
        self.intake = Intake(detector.shape, self.options, house.held, house.room)
        self.turns, self.metrics = house.turns, house.metrics
        self.monitor: Monitor | None = None  # of what arrives
        self._warming = False
        self.batcher = Batcher(lanes(detector, self.predicting), self.options, self.turns, self._passed)
        self.attacks = Attacks(detector, self.options, self.turns)
        self._examples: asyncio.Task[list[Example]] | None = None
        self._bare: asyncio.Task[float | None] | None = None

    @property
    def ready(self) -> bool:
        """Whether this model takes requests."""
        return not (self.house.draining or self.batcher.stuck)

    def predicting(self, images: Tensor, watched: Tensor) -> Prediction:
        """A pass of predictions, on the model's thread. The monitor sees what arrives, in the order of the passes."""
        found = self.detector.predict(images, batch=len(images))
        if self._warming:
            return found
        self.metrics.saw(self.about.name, found)
        if self.monitor is not None:
            try:
                self.monitor.add(found, watched.numpy())
            except ProodError as error:  # no reason to fail a request
                log.warning("the monitor of %s left images out: %s", self.about.name, error)
        return found

    def _passed(self, work: str, rows: int, seconds: float, waited: list[float]) -> None:
        self.metrics.rows.labels(self.about.name, work).observe(rows)
        self.metrics.stages.labels("compute").observe(seconds)
        wait = self.metrics.stages.labels("wait")
        for one in waited:
            wait.observe(one)

    async def warm(self) -> None:
        """Grey images, so that the first request finds a model that is ready, and the service knows what work costs."""
        self._warming = True
        try:
            for place, rows in enumerate((1, 1, 2)):
                if place == 1:
                    self.batcher.forget()  # the first pass also sets up what all later ones use
                images = torch.full((rows, *self.detector.shape), 0.5)
                await self.batcher.run("predict", images)
                await self.batcher.run("bound", images, torch.full((rows,), self.eps, dtype=torch.float64))
        except Exception as error:  # every request will say so, too
            log.warning("the model fails on a grey image: %s", first_line(error))
        finally:
            self._warming = False

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
            "fingerprint": self.fingerprint,
            "certificates": self.about.certificate is not None,
            "limits": {name: getattr(options, name) for name in _LIMITS},
            "version": __version__,
        }

    @contextmanager
    def promise(self, images: int, balls: int = 0) -> Iterator[None]:
        """Accept the work of a request, as long as the block lasts, or refuse it before anything is computed."""
        with self.batcher.promise("predict", images), self.batcher.promise("bound", balls):
            yield

    async def predict(self, images: Tensor, *, watch: bool = True) -> list[dict[str, Any]]:
        with self.promise(len(images)):
            return self._answers(await self.predicted(images, watch), "p_value", "probabilities")

    async def predicted(self, images: Tensor, watch: bool = True) -> Arrays:
        """Without `watch`, they do not count as arrivals: pictures to try, or repeated ones."""
        return await self.batcher.run("predict", images, None if watch else torch.ones(len(images)))

    async def bounds(self, images: Tensor, eps: list[float]) -> np.ndarray:
        """The certified confidence of each image at each radius, (N, R)."""
        rows = images.repeat_interleave(len(eps), 0)
        numbers = torch.tensor(eps, dtype=torch.float64).repeat(len(images))
        found = await self.batcher.run("bound", rows, numbers)
        bounds = self.detector.nested(found["upper_bound"].reshape(len(images), len(eps)), eps)
        self.metrics.proved(self.about.name, self.detector.rule, bounds)
        return bounds

    async def certify(
        self, images: Tensor, eps: list[float], *, search: bool = True, watch: bool = True
    ) -> list[dict[str, Any]]:
        """Bounds, and the certified radius; without the search for it, the largest of these radii that is one."""
        search = search and self.detector.threshold is not None
        with self.promise(len(images), len(images) * (len(eps) + SEARCH * search)):
            found, bounds = await self.predicted(images, watch), await self.bounds(images, eps)
            reach = await self._reach(images) if search else np.full(len(images), math.nan)
        rule = self.detector.rule
        decided = rule.threshold is not None
        radii = rule.reach(reach, bounds, eps) if decided else reach
        found["upper_bound"] = bounds
        found["rejected"] = rule.rejects(bounds) if decided else np.full(bounds.shape, None)
        found["radius"] = np.where(np.isnan(radii), np.array(None), radii)
        return self._answers(found, "upper_bound", "rejected", "radius")

    async def _reach(self, images: Tensor) -> np.ndarray:
        """The certified radii: others get their turn between two steps of the bisection."""
        search = radius_search(images, self.detector.rule.required, norm=HOW["norm"])
        try:
            asked = next(search)
            while True:
                found = await self.batcher.run("bound", *asked, patient=False)
                asked = search.send(torch.from_numpy(found["upper_bound"]))
        except StopIteration as end:
            return np.asarray(end.value)

    def _answers(self, found: Arrays, *more: str) -> list[dict[str, Any]]:
        """For each image what the arrays say of it, and None where there is no array: without a threshold, say."""
        lists: dict[str, list[Any]] = {key: values.tolist() for key, values in found.items()}
        lists["name"] = [self.detector.classes[label] for label in lists["label"]]
        keys = ("label", "name", "confidence", "p_in", "accepted", "reason", *more)
        columns = [lists.get(key, [None] * len(lists["name"])) for key in keys]
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]

    async def attack(self, image: Tensor, eps: float, steps: int, on: Target) -> AsyncGenerator[dict[str, Any]]:
        """The steps of an attack, and at last what it found."""
        threshold = await self.bare_threshold() if on == "classifier" else None
        async with aclosing(self.attacks.events(Asked(image, eps, steps, on, threshold))) as events:
            async for event in events:
                yield event

    async def bare_threshold(self) -> float | None:
        """The confidence from which the classifier alone would accept as large a share of its own kind as the model.

        The model's file may state it; otherwise it is found once, if this machine has that kind.
        """
        if self._bare is None:
            self._bare = asyncio.ensure_future(self._bare_threshold())
        return await asyncio.shield(self._bare)

    async def _bare_threshold(self) -> float | None:
        about, accept = self.about, self.detector.accept
        if about.gallery is not None and about.gallery.classifier_threshold is not None:
            return about.gallery.classifier_threshold
        images = None if accept is None else await asyncio.to_thread(own_kind, self.detector.shape, about.inside)
        if images is None or accept is None:
            return None
        found = await self.batcher.run("classifier", images)
        return confidence_of(threshold_at(found["score"], accept), self.detector.count)

    async def certificate(self, image: Tensor, eps: float, name: str) -> str:
        """A line of a file of certificates, which `prood verify` reads."""
        if self.about.certificate is None:
            raise Refused(404, "this service was started without certificates: use 'prood serve'")
        with self.promise(0, 1):
            found = await self.batcher.run("bound", image[None], torch.tensor([eps], dtype=torch.float64))
        return await asyncio.to_thread(self.about.certificate, image, name, eps, float(found["of_g"][0]))

    async def far(self, image: Tensor, factors: list[float]) -> dict[str, Any]:
        """The scaled images 0.5 + α(x − 0.5), without clipping: far away the confidence goes to 1/K."""
        scale = torch.tensor(factors, dtype=torch.float32).view(-1, 1, 1, 1)
        with self.batcher.promise("far", len(factors)):
            found = await self.batcher.run("far", 0.5 + scale * (image - 0.5))
        if not all(np.isfinite(values).all() for values in found.values()):
            raise bad("the network overflows so far away: choose smaller factors")
        said = {key: values.tolist() for key, values in found.items()}
        return {"factors": factors, **said, "floor": 1 / self.detector.count}

    async def examples(self) -> list[Example]:
        """Drawn once, in a thread: reading the image sets takes a second or two."""
        if self._examples is None:
            work = asyncio.to_thread(examples, self.detector.shape, self.about.inside, self.about.gallery)
            self._examples = asyncio.ensure_future(work)
        return await asyncio.shield(self._examples)

    def close(self, seconds: float | None = None) -> bool:
        """Finish what was accepted; whether that took no longer than this."""
        free = self.attacks.close(seconds)
        return self.batcher.close(seconds) and free
