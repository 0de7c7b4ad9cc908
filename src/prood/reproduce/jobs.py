"""Steps that wait for one another, one after the other or several at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console

from prood.errors import ProodError

START = "spawn"
"""How a process begins: anew. A copy of this one could not use a GPU that this one has used."""


@dataclass(frozen=True)
class Step:
    """`action` is due once every step of `needs` is done. It is a function of a module, or a partial of one: these
    can be sent to another process."""

    name: str
    action: Callable[[], Any]
    needs: tuple[str, ...] = ()


def carry_out(steps: Sequence[Step], *, jobs: int = 1, console: Console | None = None) -> None:
    """Carry out all steps: in their order, or as many as `jobs` at a time, the first that may begin first.

    A step stands behind those that it needs. When one fails, those that have begun are waited for, no other is begun,
    and its error is raised.
    """
    for place, step in enumerate(steps):
        missing = set(step.needs) - {before.name for before in steps[:place]}
        if missing:
            raise ValueError(f"{step.name} stands before what it needs: {', '.join(sorted(missing))}")
    if jobs == 1:
        for step in steps:
            step.action()
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ProodError("torchrun's processes work on one step together: leave out --jobs, or torchrun")
    threads = max(1, torch.get_num_threads() // jobs)
    context = multiprocessing.get_context(START)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(threads,)) as pool:
        try:
            _several(steps, pool, jobs, console or Console())
        except BrokenProcessPool:
            raise ProodError("one of the processes was ended, perhaps for want of memory: try fewer --jobs") from None


def _several(steps: Sequence[Step], pool: ProcessPoolExecutor, jobs: int, console: Console) -> None:
    waiting, done = list(steps), set[str]()
    running: dict[Future[float], Step] = {}
    while waiting or running:
        ready = [step for step in waiting if done.issuperset(step.needs)]
        for step in ready[: jobs - len(running)]:  # no more: what is ready later may come before the others
            waiting.remove(step)
            running[pool.submit(_timed, step.action)] = step
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            step = running.pop(future)
            console.print(f"{step.name:<36} {future.result():6.1f} s", highlight=False)
            done.add(step.name)


def _timed(action: Callable[[], Any]) -> float:
    began = time.monotonic()
    action()
    torch.cuda.empty_cache()  # the next step of another process may need it; nothing where there is no GPU
    return time.monotonic() - began


def _begin(threads: int) -> None:
    """In each process: its share of the cores, and on Ctrl-C an end without a traceback from each of them."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
