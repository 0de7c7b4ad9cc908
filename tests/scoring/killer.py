"""Runs in a process of its own: scores in children that are killed, or that may write small files only.

It never computes itself, so that a child may be forked in milliseconds and finds no lock of a thread that is not there.
The last line that it prints is a list: how each child ended.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet  # noqa: F401 – children shall not spend their time on it
import torch

from prood.errors import ProodError
from prood.scoring import Engine, Request, score


def child(request: Request, out: Path, *, until: float | None = None, limit: int | None = None) -> int:
    """Score in a child, killed after `until` seconds; its exit code, 4 for an error of the system."""
    number = os.fork()
    if number == 0:
        code = 3
        try:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            score(request, out, Engine(workers=1, device="cpu"))
            code = 0
        except ProodError:
            code = 2
        except OSError as error:
            print(error, flush=True)
            code = 4
        finally:
            os._exit(code)
    if until is not None:
        time.sleep(until)
        os.kill(number, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def main(source: str, model: str, out: str, kills: int, limit: int | None) -> None:
    torch.set_num_threads(1)
    request = Request(sources=(source,), model=model, eps=(0.02,), rows=10)
    began = time.monotonic()
    ends = [child(request, Path(out, "whole"))]
    passed = time.monotonic() - began
    for moment in sorted(np.random.default_rng().uniform(0, passed, kills)):  # the first one is surely at work
        ends.append(child(request, Path(out, "killed"), until=moment))
    if limit is not None:
        ends.append(child(request, Path(out, "killed"), limit=limit))
        ends.append(len(list(Path(out, "killed").glob("*.parquet")) + list(Path(out, "killed").glob(".*.part"))))
    ends.append(child(request, Path(out, "killed")))
    print(json.dumps(ends))


if __name__ == "__main__":
    source, model, out, kills, limit = sys.argv[1:]
    main(source, model, out, int(kills), int(limit) or None)
