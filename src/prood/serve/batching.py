"""One thread for the model, and queues before it: what many clients ask becomes one forward pass.

Work is cut into lanes (predict, bound, …), each a function of a stack of rows; a pass serves one lane and lasts about
`pass_s` seconds, so that nothing waits long for its turn. Predictions come before proofs, which keep a fifth of the
time. Within a lane every request gets as many rows of a pass as the others. What would take too long is not accepted.
"""

import asyncio
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prood.serve.answer import Refused, busy
from prood.serve.cost import Cost
from prood.serve.options import Options

Arrays = dict[str, NDArray[Any]]
Work = Callable[[Tensor, Tensor], Arrays]
"""(rows, a number for each row, 0 where a lane needs none) → arrays with an entry for each row."""
Watch = Callable[[str, int, float, list[float]], None]
"""Told of each pass: its lane, its rows, its seconds, and for how long each request that it begins has waited."""

FIRST = "predict"
OTHERS = 4.0
"""A second of another lane counts as much as four of this one: a fifth is theirs while predictions wait."""
STUCK_S = 10.0


class Turns:
    """A lock that is handed on in the order in which it was asked for.

    The arithmetic of certificates is a setting of the whole process while it lasts (`bounds.strict`), so only one
    thread uses a model at a time, whichever it is. An attack hands its turn on after each step. `promised` are the
    seconds of work that all who take turns have accepted, by lane.
    """

    def __init__(self) -> None:
        self.promised: defaultdict[str, float] = defaultdict(float)
        self._changed, self._next, self._now = threading.Condition(), 0, 0

    def __enter__(self) -> None:
        with self._changed:
            mine = self._next
            self._next += 1
            self._changed.wait_for(lambda: self._now == mine)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._now += 1
            self._changed.notify_all()

    def hand_on(self) -> None:
        self.__exit__()
        self.__enter__()


@dataclass(eq=False)
class _Job:
    rows: Tensor
    numbers: Tensor
    asked: float
    head_start: float  # seconds that it need not wait for others
    answer: asyncio.Future[Arrays]
    taken: int = 0
    parts: list[Arrays] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.rows) - self.taken


@dataclass(eq=False)
class _Lane:
    work: Work
    weight: float
    queue: deque[_Job] = field(default_factory=deque)
    cost: Cost = field(default_factory=Cost)
    spent: float = 0.0  # seconds of the thread, times the weight
    promised: float = 0.0  # seconds of the requests that were accepted and have not ended

    @property
    def waiting(self) -> int:
        return sum(job.left for job in self.queue)


Part = tuple[_Job, slice]


class Batcher:
    """`await run(lane, rows)` on the event loop; the rows are computed, perhaps with others', on the model's thread."""

    def __init__(self, lanes: Mapping[str, Work], options: Options, turns: Turns, watch: Watch) -> None:
        self._turns, self._watch = turns, watch
        self._batch, self._wait = options.batch, options.wait_ms / 1000
        self._pass, self._limit = options.pass_s, options.deadline_s
        self._lanes = {name: _Lane(work, 1.0 if name == FIRST else OTHERS) for name, work in lanes.items()}
        self._changed = threading.Condition()
        self._idle, self._closed = True, False
        self._clock = 0.0  # what the lane that was served last had spent before
        self._thread: threading.Thread | None = None
        self._pass_now: tuple[float, float] | None = None  # since when a pass lasts, and how long it should

    @property
    def waiting(self) -> int:
        """Rows that nobody works on yet."""
        with self._changed:
            return sum(lane.waiting for lane in self._lanes.values())

    @property
    def promised(self) -> float:
        """Seconds of work that was accepted."""
        return sum(lane.promised for lane in self._lanes.values())

    @property
    def stuck(self) -> bool:
        """Whether a pass, or an attack that it waits for, lasts far longer than it should, or the thread has ended."""
        if self._thread is not None and not self._closed and not self._thread.is_alive():
            return True
        pass_ = self._pass_now
        return pass_ is not None and time.monotonic() - pass_[0] > max(STUCK_S, 10 * pass_[1])

    def forget(self) -> None:
        """What passes have cost so far says nothing about the ones to come."""
        for lane in self._lanes.values():
            lane.cost = Cost()

    @contextmanager
    def promise(self, lane: str, rows: int) -> Iterator[None]:
        """Accept a request with this number of rows while the block lasts; refuse it if they would take too long."""
        own = self._lanes[lane]
        seconds = own.cost.seconds(rows, self._pass, self._batch)
        if seconds > self._limit:
            raise Refused(
                413, f"this would take about {seconds:.0f} seconds, of {self._limit:g}: send fewer images or radii"
            )
        waiting = self._turns.promised[lane]
        if waiting and waiting + seconds > self._limit:
            raise busy("too many requests are waiting")
        own.promised += seconds
        self._turns.promised[lane] += seconds
        try:
            yield
        finally:
            own.promised -= seconds
            self._turns.promised[lane] -= seconds

    async def run(self, lane: str, rows: Tensor, numbers: Tensor | None = None, *, patient: bool = True) -> Arrays:
        """The lane's arrays for these rows, which wait for others if they are `patient`. Nobody computes what is left
        of them once this is cancelled."""
        own = self._lanes[lane]
        now = time.monotonic()
        given = torch.zeros(len(rows)) if numbers is None else numbers
        job = _Job(rows, given, now, 0.0 if patient else self._wait, asyncio.get_running_loop().create_future())
        with self._changed:
            if self._closed:
                raise busy("the service is shutting down")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="prood-model", daemon=True)
                self._thread.start()
            if not own.queue:  # the time that a lane did not use is not saved up
                own.spent = max(own.spent, self._clock)
            own.queue.append(job)
            # Waking the thread for every request would cost more than the request.
            if self._idle or len(own.queue) >= self._batch:
                self._changed.notify()
        try:
            return await job.answer
        finally:
            if job.left:
                with self._changed:
                    if job in own.queue:
                        own.queue.remove(job)

    def close(self, seconds: float | None = None) -> bool:
        """Finish what was accepted, then end the thread; whether it ended in time."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            lane, parts = taken
            name, rows = next(name for name, one in self._lanes.items() if one is lane), _rows(parts)
            self._pass_now = (time.monotonic(), lane.cost.seconds(rows, self._pass, self._batch))
            with self._turns:
                begun = time.monotonic()
                waited = [begun - job.asked for job, place in parts if place.start == 0]
                answers = self._compute(lane, parts)
                seconds = time.monotonic() - begun
            self._pass_now = None
            lane.cost.add(rows, seconds)
            lane.spent += seconds * lane.weight
            self._watch(name, rows, seconds, waited)
            try:
                parts[0][0].answer.get_loop().call_soon_threadsafe(_deliver, parts, answers)
            except RuntimeError:  # the loop is closed: nobody is there to be told
                return

    def _take(self) -> tuple[_Lane, list[Part]] | None:
        """Wait for work; the parts of the next pass, or None at the end."""
        with self._changed:
            while True:
                lane = min((one for one in self._lanes.values() if one.queue), key=lambda one: one.spent, default=None)
                if lane is None:
                    if self._closed:
                        return None
                    self._idle = True
                    self._changed.wait()
                    continue
                self._idle = False
                size = lane.cost.fitting(self._pass, self._batch)
                first = lane.queue[0]
                left = first.asked - first.head_start + self._wait - time.monotonic()
                if left <= 0 or self._closed or lane.waiting >= size:
                    self._clock = lane.spent
                    return lane, _gathered(lane.queue, size)
                self._changed.wait(left)

    def _compute(self, lane: _Lane, parts: list[Part]) -> list[Arrays | Exception]:
        """One answer for each part. Where a pass fails, each is tried alone: nobody fails because of a neighbour."""
        rows = torch.cat([job.rows[place] for job, place in parts])
        try:
            arrays = lane.work(rows, torch.cat([job.numbers[place] for job, place in parts]))
        except Exception as error:
            return [error] if len(parts) == 1 else [answer for part in parts for answer in self._compute(lane, [part])]
        answers: list[Arrays | Exception] = []
        start = 0
        for _, place in parts:
            end = start + place.stop - place.start
            answers.append({key: values[start:end] for key, values in arrays.items()})
            start = end
        return answers


def _rows(parts: list[Part]) -> int:
    return sum(place.stop - place.start for _, place in parts)


def _gathered(queue: deque[_Job], size: int) -> list[Part]:
    """Up to `size` rows, of each job as many as of the others; what is not finished goes behind them."""
    parts: list[Part] = []
    share = max(1, size // len(queue))
    while queue and size:
        job = queue.popleft()
        count = min(share, size, job.left)
        parts.append((job, slice(job.taken, job.taken + count)))
        job.taken += count
        size -= count
        if job.left:
            queue.append(job)
    return parts


def _deliver(parts: list[Part], answers: list[Arrays | Exception]) -> None:
    for (job, _), answer in zip(parts, answers, strict=True):
        if job.answer.done():  # its client is gone, or another part has failed
            continue
        if isinstance(answer, Exception):
            job.answer.set_exception(answer)
            continue
        job.parts.append(answer)
        if sum(len(next(iter(part.values()))) for part in job.parts) == len(job.rows):
            job.answer.set_result(_joined(job.parts))


def _joined(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
