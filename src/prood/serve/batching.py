"""One thread for the model, and a queue before it: what many clients ask becomes one forward pass.

Work is cut into lanes (predict, bound, …), each a function of a stack of rows; a pass serves one lane. Lanes take
turns, so that a long certificate delays a prediction by one pass at most.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prood.serve.answer import busy
from prood.serve.options import Options

Arrays = dict[str, NDArray[Any]]
Work = Callable[[Tensor, Tensor], Arrays]
"""(rows, a number for each row, 0 where a lane needs none) → arrays with an entry for each row."""


class Turns:
    """A lock that is handed on in the order in which it was asked for.

    The arithmetic of certificates is a setting of the whole process while it lasts (`bounds.strict`), so only one
    thread uses the model at a time. An attack hands its turn on after each step.
    """

    def __init__(self) -> None:
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
    since: float
    answer: asyncio.Future[Arrays]


class Batcher:
    """`await run(lane, rows)` on the event loop; the rows are computed, perhaps with others', on the model's thread."""

    def __init__(
        self, lanes: Mapping[str, Work], options: Options, turns: Turns, watch: Callable[[str, int], None]
    ) -> None:
        self._lanes, self._turns, self._watch = lanes, turns, watch
        self._batch, self._wait, self._limit = options.batch, options.wait_ms / 1000, options.queue
        self._queues: dict[str, deque[_Job]] = {name: deque() for name in lanes}
        self._rows = dict.fromkeys(lanes, 0)
        self._changed = threading.Condition()
        self._idle, self._closed = True, False
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Rows that nobody works on yet."""
        return sum(self._rows.values())

    async def run(self, lane: str, rows: Tensor, numbers: Tensor | None = None) -> Arrays:
        """The lane's arrays for these rows; refused where too many wait already. Long ones are cut into parts."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        given = (rows, torch.zeros(len(rows)) if numbers is None else numbers)
        parts = zip(*(torch.split(one, self._batch) for one in given), strict=True)
        jobs = [_Job(part, share, now, loop.create_future()) for part, share in parts]
        with self._changed:
            if self._closed:
                raise busy("the service is shutting down")
            waiting = self.waiting
            if waiting and waiting + len(rows) > self._limit:
                raise busy("too many requests are waiting")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="prood-model", daemon=True)
                self._thread.start()
            self._queues[lane].extend(jobs)
            self._rows[lane] += len(rows)
            # Waking the thread for every request would cost more than the request.
            if self._idle or self._rows[lane] >= self._batch:
                self._changed.notify()
        if len(jobs) == 1:
            return await jobs[0].answer
        results = await asyncio.gather(*(job.answer for job in jobs))
        return {key: np.concatenate([some[key] for some in results]) for key in results[0]}

    def close(self) -> None:
        """Finish what was accepted, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            lane, jobs = taken
            with self._turns:
                answers = self._compute(lane, jobs)
            self._watch(lane, sum(len(job.rows) for job in jobs))
            try:
                jobs[0].answer.get_loop().call_soon_threadsafe(_deliver, jobs, answers)
            except RuntimeError:  # the loop is closed: nobody is there to be told
                return

    def _take(self) -> tuple[str, list[_Job]] | None:
        """Wait for work; the jobs of the next pass, or None at the end."""
        with self._changed:
            while (lane := next((name for name, queue in self._queues.items() if queue), None)) is None:
                if self._closed:
                    return None
                self._idle = True
                self._changed.wait()
            self._idle = False
            queue = self._queues[lane] = self._queues.pop(lane)  # behind the others, which are served before it again
            until = queue[0].since + self._wait
            while self._rows[lane] < self._batch and not self._closed and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            jobs = [queue.popleft()]
            rows = len(jobs[0].rows)
            while queue and rows + len(queue[0].rows) <= self._batch:
                rows += len(queue[0].rows)
                jobs.append(queue.popleft())
            self._rows[lane] -= rows
            return lane, jobs

    def _compute(self, lane: str, jobs: list[_Job]) -> list[Arrays | Exception]:
        """One answer for each job. Where a pass fails, each is tried alone: nobody fails because of a neighbour."""
        try:
            arrays = self._lanes[lane](torch.cat([job.rows for job in jobs]), torch.cat([job.numbers for job in jobs]))
        except Exception as error:
            return [error] if len(jobs) == 1 else [answer for job in jobs for answer in self._compute(lane, [job])]
        ends = accumulate(len(job.rows) for job in jobs)
        parts = [slice(end - len(job.rows), end) for job, end in zip(jobs, ends, strict=True)]
        return [{key: values[part] for key, values in arrays.items()} for part in parts]


def _deliver(jobs: list[_Job], answers: list[Arrays | Exception]) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        if job.answer.done():  # its client is gone
            continue
        if isinstance(answer, Exception):
            job.answer.set_exception(answer)
        else:
            job.answer.set_result(answer)
