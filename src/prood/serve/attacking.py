"""Attacks of the page: the same search against the guarded model and against its classifier alone, told step by step.

Each is projected gradient ascent on the confidence. They run one at a time, in a thread that hands the model on after
each step; each ends where its client goes, or where its time is over.
"""

import asyncio
import hashlib
import logging
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from prood.atomic import replacing
from prood.attacks import PGD
from prood.attacks.base import TOLERANCE
from prood.attacks.search import Search
from prood.detector import Answer, Detector
from prood.errors import ProodError
from prood.models import Score
from prood.models.confidence import score_at
from prood.serve.answer import bad, busy
from prood.serve.batching import Turns
from prood.serve.options import Options
from prood.serve.pictures import data_url
from prood.serve.work import HOW, Bare

Target = Literal["guarded", "classifier"]
TARGETS: tuple[Target, ...] = ("guarded", "classifier")
SURE = 0.999
"""The classifier alone has no bound: a search that made it this sure has nothing left to show."""
SHARE = 0.8
"""Share of the deadline after which a search ends, and answers with what it has found."""
log = logging.getLogger("prood.serve")


class Stopped(Exception):
    """Nobody waits for the attack any more."""


class Enough(Exception):
    """Its time is over."""


class Unsound(RuntimeError):
    """An attack above its certificate. It never happens; if it does, it is a bug of ours and no clamping hides it."""


@dataclass(frozen=True)
class Asked:
    """One attack: `steps` evaluations of four searches side by side, fewer where nothing is left to find.

    Against the classifier alone, `threshold` is the known threshold of its own confidence, or None.
    """

    image: Tensor
    eps: float
    steps: int
    on: Target = "guarded"
    threshold: float | None = None


@dataclass(frozen=True, kw_only=True)
class Traced(PGD):
    """Calls `after(search)` after each step, which may end it by raising."""

    name: ClassVar[str] = "traced"

    after: Callable[[Search], None]

    def search(self, search: Search) -> None:
        # Called before the points of a step are looked at: what is best now is what the last step left.
        search.watch = lambda _: self.after(search)
        super().search(search)
        self.after(search)


class Trace:
    """The best confidence after each step, told as it is found; then others have their turn at the model."""

    def __init__(self, judge: Callable[[Tensor], Answer], tell: Callable[[dict[str, Any]], None], turns: Turns) -> None:
        self.judge, self.tell, self.turns = judge, tell, turns
        self.confidence: list[float] = []
        self.best: Answer | None = None
        self.point: Tensor | None = None
        self.passes = 0
        self._value = -np.inf

    def __call__(self, search: Search) -> None:
        # A search may round otherwise on a GPU: what is shown is what the model says of the point.
        if self.best is None or search.value[0].item() > self._value:
            self._value = search.value[0].item()
            answer = self.judge(search.best)
            if self.best is None or answer.confidence > self.best.confidence:
                self.best, self.point = answer, search.best[0].clone()
        assert self.best is not None
        self.passes = search.forward + search.backward
        self.confidence.append(self.best.confidence)
        said = {"name": self.best.name, "accepted": self.best.accepted}
        self.tell({"step": len(self.confidence) - 1, "confidence": self.best.confidence, **said})
        self.turns.hand_on()


def attack(detector: Detector, asked: Asked, turns: Turns, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """What the search finds. `tell` is told the bound and each step; it may end the search by raising."""
    some, step = asked.image[None].to(detector.device), max(asked.eps / 2, 1e-3)
    bare = Bare(detector, asked.threshold)
    judge, score = (bare.answer, bare.score) if asked.on == "classifier" else (lambda x: detector.predict(x)[0], None)
    trace = Trace(judge, tell, turns)
    search = Traced(steps=asked.steps - 1, step=step, uniform=1, gaussian=1, blocks=1, after=trace)
    ended, bound = "steps", None
    with turns:
        tell({"steps": asked.steps})
        goal, bound = _goal(detector, score, some, asked.eps)
        tell({"upper_bound": bound})
        try:
            outcome = search(score or detector.score, some, asked.eps, goal=goal)
            ended = "goal" if bool(outcome.settled[0]) else "steps"
        except Enough:
            ended = "time"
    if trace.best is None or trace.point is None:  # the image itself has reached the goal: nothing was searched
        with turns:
            trace.point, trace.best = some[0], judge(some)
        trace.confidence.append(trace.best.confidence)
    if bound is not None and not trace.best.confidence <= bound:
        _keep(asked.image, trace.point.cpu(), asked.eps)
        raise Unsound(f"confidence {trace.best.confidence!r} found above the certified {bound!r}")
    best = trace.best
    return {
        "on": asked.on,
        "eps": asked.eps,
        "confidence": trace.confidence,
        "found": best.confidence,
        "upper_bound": bound,
        "clean": trace.confidence[0],
        "label": best.label,
        "name": best.name,
        "accepted": best.accepted,
        "reason": best.reason,
        "threshold": bare.threshold if asked.on == "classifier" else detector.threshold,
        "image": data_url(trace.point),
        "original": data_url(asked.image),
        "passes": trace.passes,
        "ended": ended,
    }


def _goal(detector: Detector, score: Score | None, some: Tensor, eps: float) -> tuple[Tensor | float, float | None]:
    """Where a search ends, on the scale of its score, and the bound of the confidence; the classifier has none."""
    if score is not None:
        return score_at(SURE, detector.count), None
    of_g = detector.bound_of_g(some, eps, **HOW)
    return detector.score.bound_from(of_g) - TOLERANCE, detector.bounded(of_g).item()


def _keep(image: Tensor, worst: Tensor, eps: float) -> None:
    digest = hashlib.sha256(worst.numpy().tobytes()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"prood-unsound-{digest}.npz"
    with replacing(path) as aside, aside.open("wb") as file:
        np.savez(file, image=image.numpy(), worst=worst.numpy(), eps=eps)
    log.error("an attack found more than its certificate allows: please report it with %s", path.name)


class Attacks:
    """The attacks of a service: one runs, others wait, and what comes then is told to come again."""

    def __init__(self, detector: Detector, options: Options, turns: Turns) -> None:
        self.detector, self.options, self.turns = detector, options, turns
        self.running: set[threading.Event] = set()  # each is set to end its attack
        self.pool = ThreadPoolExecutor(1, "prood-attack")
        self._last: Future[int] | None = None

    async def events(self, asked: Asked) -> AsyncGenerator[dict[str, Any]]:
        """The steps of an attack, and at last all that it found; it ends where nobody listens any more."""
        if len(self.running) >= self.options.attacks:
            raise busy("other attacks are waiting")
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any] | None]()
        stop, end = threading.Event(), time.monotonic() + SHARE * self.options.deadline_s

        def tell(event: dict[str, Any]) -> None:
            if stop.is_set():
                raise Stopped
            loop.call_soon_threadsafe(queue.put_nowait, event)
            if time.monotonic() > end and "step" in event:
                raise Enough

        self.running.add(stop)
        work = loop.run_in_executor(self.pool, attack, self.detector, asked, self.turns, tell)
        work.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            yield work.result()
        except Stopped:
            raise busy("the service is shutting down") from None
        except ProodError as error:  # a classifier without gradients, say: no failure of the service
            raise bad(str(error)) from None
        finally:
            stop.set()  # also where the request is cancelled: nobody waits for it any more
            self.running.remove(stop)
            work.cancel()

    def close(self, seconds: float | None) -> bool:
        """End what still runs; whether the thread was free in time."""
        for stop in list(self.running):  # of attacks that outlasted the time to finish
            stop.set()
        if self._last is None:
            self._last = self.pool.submit(int)
            self.pool.shutdown(wait=False)
        return not wait([self._last], seconds).not_done
