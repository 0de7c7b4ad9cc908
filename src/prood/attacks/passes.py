"""Scores and gradients of many points at once.

On a GPU a pass through a network is hundreds of kernels. For few images, and without gradients, to launch them one by
one takes longer than to run them; and a search repeats the same pass thousands of times. So it is captured as a CUDA
graph and replayed (`benchmarks/attacks.py` has what that gains).
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from prood.models import Score

Pass = Callable[[Tensor], tuple[Tensor, ...]]

WARM_UP = 3
"""Passes of one kind and size that are run as they are before one is captured: libraries prepare themselves in them."""
SMALLEST = 32
"""Rows of the smallest graph; others have twice, four times … as many, and what is missing is padded."""
LARGEST = 2**21
"""Pixel values of the largest pass that is captured. Larger ones have little to gain, and a graph keeps its memory."""


class Passes:
    """What a score and its slope are, at most `rows` points at a time."""

    def __init__(self, score: Score, rows: int) -> None:
        self.score, self.rows = score, rows
        self.captures = True
        self._seen: Counter[tuple[str, int]] = Counter()
        self._graphs: dict[tuple[str, int], _Graph] = {}

    def values(self, points: Tensor) -> Tensor:
        (values,) = self._all("values", self._values, points)
        return values

    def values_and_gradients(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients are by the pixels; where there is none, or no number, it is 0."""
        values, gradients = self._all("gradients", self._values_and_gradients, points)
        return values, gradients

    def _values(self, points: Tensor) -> tuple[Tensor]:
        with torch.no_grad():
            return (self.score.quick(points).detach(),)

    def _values_and_gradients(self, points: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            points = points.detach().requires_grad_(True)
            scores = self.score.quick(points)
            slope = None
            if scores.requires_grad:
                (slope,) = torch.autograd.grad(scores.sum(), points, allow_unused=True)
        # Detached: a best point that kept its graph would keep every network pass of the search in memory.
        gradients = torch.zeros_like(points) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0)
        return scores.detach(), gradients.detach()

    def _all(self, kind: str, run: Pass, points: Tensor) -> tuple[Tensor, ...]:
        parts = [self._part(kind, run, part) for part in torch.split(points, self.rows)]
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))

    def _part(self, kind: str, run: Pass, points: Tensor) -> tuple[Tensor, ...]:
        key = kind, size_for(len(points), self.rows)
        if not (points.is_cuda and self.captures and key[1] * math.prod(points.shape[1:]) <= LARGEST):
            return run(points)
        if key not in self._graphs:
            self._seen[key] += 1
            if self._seen[key] <= WARM_UP:
                return run(points)
            self.captures = asks_nothing(run, points)
            if not self.captures:
                return run(points)
            self._graphs[key] = _Graph(run, points, key[1])
        return self._graphs[key](points)


class _Graph:
    """One pass of a fixed number of rows, captured."""

    def __init__(self, run: Pass, like: Tensor, size: int) -> None:
        self.points = torch.zeros(size, *like.shape[1:], dtype=like.dtype, device=like.device)
        self.points[: len(like)] = like
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.found = run(self.points)

    def __call__(self, points: Tensor) -> tuple[Tensor, ...]:
        self.points[: len(points)] = points  # what an earlier pass left below it is scored too, and not looked at
        self.graph.replay()
        return tuple(part[: len(points)].clone() for part in self.found)


def asks_nothing(run: Pass, points: Tensor) -> bool:
    """Whether a pass never waits for the device, as one must that looks at its numbers: no graph can hold that.

    Tried before anything is captured: after a capture that failed, no random numbers can be drawn in this process.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        run(points)
    except RuntimeError:
        return False
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return True


def size_for(count: int, rows: int) -> int:
    """The rows of the graph for so many points: few sizes, so that few graphs are captured as images settle."""
    return min(rows, max(SMALLEST, 1 << (count - 1).bit_length()))
