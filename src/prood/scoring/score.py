"""Scoring many images into a folder: who does which shards, and what is said in the end."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console

from prood.errors import BadValue, NotFound
from prood.extras import require_packages
from prood.scoring.cluster import Pool
from prood.scoring.cluster import run as run_on_ray
from prood.scoring.job import INSIDE, Job, Request
from prood.scoring.local import run as run_here
from prood.scoring.progress import Progress

SHARED = 4
"""Processes that share a GPU: while one decodes, another computes."""


@dataclass(frozen=True)
class Engine:
    """Where the shards are scored, and which: `index` of `count` machines takes every count-th one.

    `workers` are processes (`local`) or actors (`ray`); None is one for each processor, or for each share of a GPU.
    """

    name: Literal["local", "ray"] = "local"
    workers: int | None = None
    gpus: float = 0.0
    index: int = 0
    count: int = 1
    device: str | None = None

    def __post_init__(self) -> None:
        if self.name not in ("local", "ray"):
            raise BadValue(f"the engine is local or ray, not {self.name!r}")
        if not 0 <= self.index < self.count:
            raise BadValue(
                f"--shard counts from 0: {self.index}/{self.count} is not among 0/{self.count} … "
                f"{self.count - 1}/{self.count}"
            )
        if self.workers is not None and self.workers < 1:
            raise BadValue(f"workers must be at least 1, not {self.workers}")
        if self.gpus < 0:
            raise BadValue(f"gpus is a share of a GPU for each worker, 0.25 say, not {self.gpus}")


@dataclass(frozen=True)
class Scored:
    """The totals of this call's shards, and those of the whole folder if all of them are there."""

    here: Counter[str]
    shards: int
    totals: Counter[str] | None


def score(request: Request, out: Path, engine: Engine | None = None, *, console: Console | None = None) -> Scored:
    """Score what is not there yet. Interrupted, even by kill −9, the same call goes on; no row is lost or doubled."""
    engine = engine or Engine()
    require_packages("scale", "pyarrow", *(["ray"] if engine.name == "ray" else []), what="prood score")
    workers = engine.workers or _workers(engine)
    # How a convolution rounds depends on the number of threads; rows shall not depend on the number of workers.
    request = replace(request, options=replace(request.options, threads=request.options.threads or 1))
    scorer = request.scorer(engine.device)
    job = Job.begun(out, request, scorer, engine.count)
    own = range(engine.index, len(job.pieces), engine.count)
    missing = [number for number in own if job.done(number) is None]
    counts = [job.pieces[number].count for number in missing]
    images = None if None in counts else sum(count or 0 for count in counts)
    name = f"progress-{engine.index}-of-{engine.count}.json"
    progress = Progress(console, out / INSIDE / name, images, len(missing))
    if missing and engine.name == "ray":
        run_on_ray(job, scorer, missing, progress, pool=Pool(workers, engine.gpus))
    elif missing:
        run_here(job, scorer, missing, progress, workers=workers)
    if missing:
        progress.tell(last=True)
    totals = job.finished()
    here: Counter[str] = Counter()
    for number in own:
        here.update(job.done(number) or Counter())
    if totals is not None and not totals["images"]:
        raise NotFound(f"{', '.join(request.sources)} hold no pictures: {out} has no rows")
    return Scored(here, len(missing), totals)


def cores() -> int:
    """Those that this process may use, which a container or a scheduler may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _workers(engine: Engine) -> int:
    if engine.name == "ray" and engine.gpus:
        return max(1, int(torch.cuda.device_count() / engine.gpus))
    if engine.device is None and torch.cuda.is_available():
        return min(cores(), SHARED * torch.cuda.device_count())
    return cores() if engine.name == "local" else max(1, cores() // 2)
