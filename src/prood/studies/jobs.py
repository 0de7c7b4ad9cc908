"""Tasks that wait for one another, one after the other or several at a time in processes of their own."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from graphlib import TopologicalSorter
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch
from rich.console import Console

from prood.errors import BadValue, Busy

START = "spawn"  # how a process begins: anew, as a copy of this one could not use a GPU that this one has used

Task = TypeVar("Task", bound=Hashable)
Needs = Mapping[Task, Collection[Task]]


def carry_out(
    needs: Needs[Task], action: Callable[[Task], Any], *, jobs: int = 1, console: Console | None = None
) -> None:
    """Carry out `action` of every task, after those that it needs: of what may begin, what stands first.

    With several `jobs`, as many run at a time; then `action` is a function of a module, or a partial of one, which can
    be sent to another process. When a task fails, those that have begun are waited for, no other is begun, and its
    error is raised.
    """
    if jobs == 1:
        _several(needs, lambda task: _done(action(task)), 1, None)
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadValue("torchrun's processes work on one step together: leave out --jobs, or torchrun")
    threads = max(1, torch.get_num_threads() // jobs)
    context = multiprocessing.get_context(START)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(threads,)) as pool:
        try:
            _several(needs, lambda task: pool.submit(_timed, action, task), jobs, console or Console())
        except BrokenProcessPool:
            raise Busy("one of the processes was ended, perhaps for want of memory: try fewer --jobs") from None


def _several(needs: Needs[Task], begin: Callable[[Task], Future[float]], jobs: int, console: Console | None) -> None:
    order = TopologicalSorter(needs)
    order.prepare()
    place = {task: number for number, task in enumerate(needs)}
    ready: list[Task] = []
    running: dict[Future[float], Task] = {}
    while order.is_active():
        ready = sorted([*ready, *order.get_ready()], key=place.__getitem__)
        while ready and len(running) < jobs:  # no more: what is ready later may come before the others
            task = ready.pop(0)
            running[begin(task)] = task
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            seconds, task = future.result(), running.pop(future)
            if console is not None:
                console.print(f"{task!s:<36} {seconds:6.1f} s", highlight=False)
            order.done(task)


def _done(_: Any) -> Future[float]:
    """What is carried out here has ended when it is begun."""
    future: Future[float] = Future()
    future.set_result(0.0)
    return future


def _timed(action: Callable[[Task], Any], task: Task) -> float:
    began = time.monotonic()
    action(task)
    torch.cuda.empty_cache()  # the next task of another process may need it; nothing where there is no GPU
    return time.monotonic() - began


def _begin(threads: int) -> None:
    """In each process: its share of the cores, on Ctrl-C an end without a traceback, and an end with its parent."""
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """A pool whose process was killed would work on, and then wait for tasks for ever."""
    parent.join()
    os._exit(1)
