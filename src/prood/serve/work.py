"""What the model's thread computes: a lane each, a function of a stack of images; and what an attack of the page does.

The attack is projected gradient ascent on the confidence, with what was found after each step.
"""

import hashlib
import logging
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from prood import bounds
from prood.atomic import replacing
from prood.attacks import PGD
from prood.attacks.search import Search
from prood.detector import Detector, Prediction
from prood.detector.answers import Reason
from prood.serve.batching import Arrays, Turns, Work

HOW: bounds.Options = {"method": "best", "norm": "linf"}
PART = 16
"""Points of an attack that are predicted in one turn."""
log = logging.getLogger("prood.serve")


def lanes(detector: Detector, predicting: Callable[[Tensor], Prediction]) -> Mapping[str, Work]:
    """predict; bound, of the ball with a radius for each row; far. `predicting` is the detector's, and counts."""

    def predict(images: Tensor, _: Tensor) -> Arrays:
        found = predicting(images)
        answers: Arrays = {name: getattr(found, name) for name in ("label", "confidence", "p_in", "probabilities")}
        if found.threshold is not None:
            answers["accepted"] = found.accepted
            answers["reason"] = np.array(found.reason, dtype=object)
        if found.p_value is not None:
            answers["p_value"] = found.p_value
        return answers

    return {
        "predict": predict,
        "bound": lambda images, eps: {"upper_bound": detector.upper_bound(images, eps, **HOW)},
        "far": lambda images, _: dict(zip(("confidence", "p_in"), detector.anywhere(images), strict=True)),
    }


class Stopped(Exception):
    """Nobody waits for the attack any more."""


class Unsound(RuntimeError):
    """An attack above its certificate. It never happens; if it does, it is a bug of ours and no clamping hides it."""


@dataclass(frozen=True, eq=False)
class Attacked:
    """`confidence` is the best so far, from the clean image on; `image` (C, H, W) and `reason` are the last one's."""

    confidence: list[float]
    reason: Reason | None
    upper_bound: float
    image: Tensor
    passes: int


@dataclass(frozen=True, kw_only=True)
class Traced(PGD):
    """Keeps its best point after each step, hands on its turn at the model, and can be stopped."""

    name: ClassVar[str] = "traced"

    turns: Turns
    stop: threading.Event
    points: list[Tensor] = field(default_factory=list)

    def search(self, search: Search) -> None:
        def watch(_: int) -> None:
            # Told before the points of a step are looked at: what is best now is what the last step left.
            self.points.append(search.best[0].clone())
            self.turns.hand_on()
            if self.stop.is_set():
                raise Stopped

        search.watch = watch
        super().search(search)
        self.points.append(search.best[0].clone())


def attack(detector: Detector, image: Tensor, eps: float, steps: int, turns: Turns, stop: threading.Event) -> Attacked:
    """`steps` evaluations of four searches side by side, fewer where the certificate says that nothing is left."""
    some, step = image[None].to(detector.device), max(eps / 2, 1e-3)
    search = Traced(steps=steps - 1, step=step, uniform=1, gaussian=1, blocks=1, turns=turns, stop=stop)
    with turns:
        if stop.is_set():  # while it waited
            raise Stopped
        bound = float(detector.upper_bound(some, eps, **HOW)[0])
        outcome = search(detector.score, some, eps)
        points = torch.stack(search.points or [some[0]]).cpu()
    # A search may round otherwise on a GPU: what is shown is what the detector says of these points.
    confidence: list[float] = []
    reasons: list[Reason | None] = []
    for part in torch.split(points, PART):
        with turns:
            found = detector.predict(part)
        confidence += found.confidence.tolist()
        reasons += found.reason
    trace = np.maximum.accumulate(confidence)
    best = int(np.argmax(confidence))
    if not trace[-1] <= bound:
        _keep(image, points[best], eps)
        raise Unsound(f"confidence {trace[-1]!r} found above the certified {bound!r}")
    return Attacked(trace.tolist(), reasons[best], bound, points[best], outcome.forward + outcome.backward)


def _keep(image: Tensor, worst: Tensor, eps: float) -> None:
    digest = hashlib.sha256(worst.numpy().tobytes()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"prood-unsound-{digest}.npz"
    with replacing(path) as aside, aside.open("wb") as file:
        np.savez(file, image=image.numpy(), worst=worst.numpy(), eps=eps)
    log.error("an attack found more than its certificate allows: please report it with %s", path.name)
