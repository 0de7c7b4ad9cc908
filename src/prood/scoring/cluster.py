"""Shards on Ray: tasks decode, and a pool of actors scores, each with its share of a GPU."""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prood.data.images import Shape
from prood.errors import ProodError, Unsupported, first_line
from prood.extras import require_packages
from prood.scoring.job import Job
from prood.scoring.pictures import Column, decoded
from prood.scoring.progress import Progress
from prood.scoring.scorer import Scorer
from prood.scoring.sources import Chunk

RESTARTS = 3
"""How often Ray may start an actor anew that was killed; its shard is begun again."""


@dataclass(frozen=True)
class Pool:
    """Number of actors, each one's share of a GPU (0.25: four share one), and decoding tasks ahead of each."""

    actors: int
    gpus: float = 0.0
    tasks: int = 2


class Actor:
    """Holds the model, and scores a shard whose images Ray's tasks decode meanwhile."""

    def __init__(self, job: Job, scorer: Scorer, tasks: int) -> None:
        import ray

        self._job, self._scorer, self._tasks = job, scorer, tasks
        self._decode = ray.remote(num_cpus=1, max_retries=RESTARTS)(_decoded)

    def score(self, number: int) -> tuple[int, int]:
        """Images and errors of a shard, whose file is written."""
        totals = self._job.score(number, self._scorer, self._ahead, lambda images, errors: None)
        return totals["images"], totals["errors"]

    def _ahead(self, chunks: Iterator[Chunk]) -> Iterator[dict[str, Any]]:
        """The decoded chunks in their order, while tasks decode the next ones."""
        waiting: deque[tuple[Chunk, Any]] = deque()
        shape = self._scorer.detector.shape
        for chunk in chunks:
            waiting.append((chunk._replace(images=()), self._decode.remote(chunk.images, shape)))
            if len(waiting) > self._tasks:
                yield _together(*waiting.popleft())
        while waiting:
            yield _together(*waiting.popleft())


def _together(chunk: Chunk, found: Any) -> dict[str, Any]:
    import ray

    return {"name": chunk.names, "reference": chunk.references, **ray.get(found)}


def _decoded(images: Column, shape: Shape) -> dict[str, Any]:
    images, errors = decoded(images, shape)
    return {"image": images, "error": errors}


def _knock(address: str) -> None:
    """Raise an OSError at once where nothing listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def run(job: Job, scorer: Scorer, numbers: Sequence[int], progress: Progress, *, pool: Pool) -> None:
    """Score these shards on the Ray cluster at RAY_ADDRESS, or on one of this machine's own."""
    require_packages("scale", "ray", what="--engine ray")
    import ray
    from ray.util import ActorPool

    started = not ray.is_initialized()
    if started:
        try:
            _knock(os.environ.get("RAY_ADDRESS", ""))
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # of a kind of its own for each way to fail, some of them plain
            fault = f"Ray cannot be started or reached ({first_line(error)})"
            raise Unsupported(f"{fault}: check RAY_ADDRESS, or use --engine local") from None
    try:
        # An actor that held a processor might hold the last one, and its decoding tasks would wait forever.
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": pool.gpus, "scheduling_strategy": "SPREAD"}
        options |= {"max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        made = ray.remote(Actor).options(**options)
        count = max(1, min(pool.actors, len(numbers)))
        actors: Any = ActorPool([made.remote(job, scorer, pool.tasks) for _ in range(count)])
        for images, errors in actors.map_unordered(lambda actor, number: actor.score.remote(number), numbers):
            progress.shard()
            progress.add(images, errors)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ProodError | OSError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        fault = f"Ray has lost an actor {RESTARTS} times ({first_line(error)})"
        raise ProodError(f"{fault}: give it fewer --workers; then run the same command to continue") from None
    finally:
        if started:
            ray.shutdown()
