"""Scores and gradients of many points at once.

On a GPU a pass through a network is hundreds of kernels. Of few images, and without gradients, to launch them one by
one takes longer than to run them; and a search repeats the same pass thousands of times. So such a pass is captured as
a CUDA graph and replayed. With gradients that gains nothing (`benchmarks/attacks.py`), and they are left as they are.
"""

import warnings
from collections import Counter

import torch
from torch import Tensor

from prood.models import Score

WARM_UP = 3
"""Passes of one size that are run as they are before one is captured: libraries prepare themselves in them."""
SMALLEST = 32
"""Rows of the smallest graph; others have twice, four times … as many, and what is missing is padded."""


class Passes:
    """What a score and its slope are, at most `rows` points at a time."""

    def __init__(self, score: Score, rows: int) -> None:
        self.score, self.rows = score, rows
        self.captures = True
        self._seen: Counter[int] = Counter()
        self._graphs: dict[int, _Graph] = {}

    def values(self, points: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._values(part) for part in torch.split(points, self.rows)])

    def values_and_gradients(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients are by the pixels; where there is none, or no number, it is 0."""
        values, gradients = zip(*map(self._with_gradients, torch.split(points, self.rows)), strict=True)
        return torch.cat(values), torch.cat(gradients)

    def _with_gradients(self, points: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            points = points.detach().requires_grad_(True)
            scores = self.score.quick(points)
            slope = None
            if scores.requires_grad:
                (slope,) = torch.autograd.grad(scores.sum(), points, allow_unused=True)
        # Detached: a best point that kept its graph would keep every network pass of the search in memory.
        gradients = torch.zeros_like(points) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0)
        return scores.detach(), gradients.detach()

    def _values(self, points: Tensor) -> Tensor:
        if not (points.is_cuda and self.captures):
            return self.score.quick(points).detach()
        size = size_for(len(points), self.rows)
        if size not in self._graphs:
            self._seen[size] += 1
            if self._seen[size] > WARM_UP:
                self.captures = asks_nothing(self.score, points)
            if self._seen[size] <= WARM_UP or not self.captures:
                return self.score.quick(points).detach()
            self._graphs[size] = _Graph(self.score, points, size)
        return self._graphs[size](points)


class _Graph:
    """One pass of a fixed number of rows, captured."""

    def __init__(self, score: Score, like: Tensor, size: int) -> None:
        self.points = torch.zeros(size, *like.shape[1:], dtype=like.dtype, device=like.device)
        self.points[: len(like)] = like
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.found = score.quick(self.points).detach()

    def __call__(self, points: Tensor) -> Tensor:
        self.points[: len(points)] = points  # what an earlier pass left below it is scored too, and not looked at
        self.graph.replay()
        return self.found[: len(points)].clone()


def asks_nothing(score: Score, points: Tensor) -> bool:
    """Whether a score never waits for the device, as one must that looks at its numbers: no graph can hold that.

    Tried before anything is captured: after a capture that failed, no random numbers can be drawn in this process.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        score.quick(points)
    except RuntimeError:
        return False
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return True


def size_for(count: int, rows: int) -> int:
    """The rows of the graph for so many points: few sizes, so that few graphs are captured as images settle."""
    return min(rows, max(SMALLEST, 1 << (count - 1).bit_length()))
