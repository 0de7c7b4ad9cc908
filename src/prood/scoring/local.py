"""Shards on this machine: a process each, which reads, decodes, scores and writes; a dead one is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from prood.errors import ProodError
from prood.scoring.job import Job, inline
from prood.scoring.progress import Progress
from prood.scoring.scorer import Scorer

DEATHS = 3
"""Processes that may die of the same shard."""


def run(job: Job, scorer: Scorer, numbers: Sequence[int], progress: Progress, *, workers: int) -> None:
    """Score these shards. One worker is this process itself."""
    if workers > 1 and len(numbers) > 1:
        _Pool(job, scorer, progress).run(numbers, min(workers, len(numbers)))
        return
    for number in numbers:
        job.score(number, scorer, inline, progress.add)
        progress.shard()


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    shard: int
    images: int = 0  # of the shard it is at
    errors: int = 0


class _Pool:
    """Processes that ask for one shard after the other; whoever dies leaves its shard to the next."""

    def __init__(self, job: Job, scorer: Scorer, progress: Progress) -> None:
        self._job, self._scorer, self._progress = job, scorer, progress
        self._context = multiprocessing.get_context("spawn")  # a fork would copy torch's locks in any state
        self._waiting: deque[int] = deque()
        self._workers: list[_Worker] = []
        self._deaths: Counter[int] = Counter()
        self._started = 0

    def run(self, numbers: Sequence[int], workers: int) -> None:
        self._waiting.extend(numbers)
        try:
            for _ in range(workers):
                self._start()
            while self._workers:
                ready = wait([worker.pipe for worker in self._workers])
                for worker in [one for one in self._workers if one.pipe in ready]:
                    self._hear(worker)
        finally:
            for worker in self._workers:
                worker.pipe.close()
                worker.process.terminate()
            for worker in self._workers:
                worker.process.join(10)

    def _start(self) -> None:
        if not self._waiting:
            return
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_work, args=(theirs, self._job, self._scorer, self._started), daemon=True
        )
        process.start()
        self._started += 1
        theirs.close()
        worker = _Worker(process, ours, self._waiting.popleft())
        self._workers.append(worker)
        ours.send(worker.shard)

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):  # a broken pipe is how a dead process looks from here
            self._bury(worker)
            return
        if isinstance(message, BaseException):
            raise message
        if message is not None:
            worker.images += message[0]
            worker.errors += message[1]
            self._progress.add(*message)
            return
        self._progress.shard()
        if self._waiting:
            worker.shard, worker.images, worker.errors = self._waiting.popleft(), 0, 0
            worker.pipe.send(worker.shard)
        else:
            worker.pipe.close()
            worker.process.join()
            self._workers.remove(worker)

    def _bury(self, worker: _Worker) -> None:
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        self._deaths[worker.shard] += 1
        if self._deaths[worker.shard] >= DEATHS:
            how = f"exit code {worker.process.exitcode}" if worker.process.exitcode != -signal.SIGKILL else "killed"
            fault = f"{DEATHS} processes ended at shard {worker.shard} ({how}), perhaps for want of memory"
            raise ProodError(f"{fault}: give fewer --workers; then run the same command to continue")
        self._progress.back(worker.images, worker.errors)
        self._waiting.append(worker.shard)
        self._start()


def _work(pipe: Connection, job: Job, scorer: Scorer, place: int) -> None:
    """What a worker process does until nobody is at the other end; the processes take the GPUs in turn."""
    if torch.cuda.is_available():
        os.environ["LOCAL_RANK"] = str(place % torch.cuda.device_count())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C reaches all; the first process ends the others
    try:
        while True:
            number = pipe.recv()
            job.score(number, scorer, inline, lambda images, errors: pipe.send((images, errors)))
            pipe.send(None)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(0)  # the first process has ended, or was killed
    except (ProodError, OSError) as error:
        pipe.send(error)
    except Exception:
        pipe.send(RuntimeError(f"a worker failed:\n{traceback.format_exc()}"))
