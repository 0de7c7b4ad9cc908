"""Scores and gradients of many points at once, as they are, as a captured graph, or compiled.

On a GPU a pass through a network is hundreds of kernels. For few images, and without gradients, launching them one by
one takes longer than to run them; and a search repeats the same pass thousands of times. So such a pass is captured as
a CUDA graph and replayed. With gradients that gains nothing (`benchmarks/attacks.py`), and they are left as they are.

A network as it is written runs its normalisations, activations and sums one by one, and reads and writes memory for
each. Compiled, they are one with their neighbours, which pays for attacks that make millions of passes: it takes half a
minute, when the first passes are made.
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from prood.errors import ProodError, Unsupported
from prood.models import Score

WARM_UP = 3
"""Passes of one size that are run as they are before one is captured: libraries prepare themselves in them."""
SMALLEST = 32
"""Rows of the smallest graph; others have twice, four times … as many, and what is missing is padded."""
SIZES = (128, 256, 512)
"""Rows of compiled passes; others are padded. Every size is compiled by itself, when it is first needed."""


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
    """Rows of the graph for this number of points: few sizes, so that few graphs are captured as images settle."""
    return min(rows, max(SMALLEST, 1 << (count - 1).bit_length()))


class Compiled(Score):
    """The same score for a GPU; only `quick`, by which attacks search, is compiled."""

    def __init__(self, score: Score, backend: str = "inductor") -> None:
        super().__init__(score.model)
        self.score = score
        # A copy without gradients of the weights: compiled, they would be computed along with those of the pixels.
        try:
            frozen = deepcopy(score)
        except (TypeError, RuntimeError) as error:  # it holds what no copy can be made of, such as a session
            raise _refusal(error) from None
        frozen.model.requires_grad_(False)
        self._quick = torch.compile(frozen.quick, dynamic=False, backend=backend)

    def __call__(self, images: Tensor) -> Tensor:
        return self.score(images)

    def quick(self, images: Tensor) -> Tensor:
        with _compiler():
            return torch.cat([self._padded(part) for part in torch.split(images, SIZES[-1])])

    def _padded(self, images: Tensor) -> Tensor:
        size = next(size for size in SIZES if size >= len(images))
        padded = torch.cat([images, images.new_zeros(size - len(images), *images.shape[1:])])
        found: Tensor = self._quick(padded.contiguous(memory_format=torch.channels_last))
        return found[: len(images)]

    def logits(self, images: Tensor) -> Tensor | None:
        return self.score.logits(images)

    def upper_bound(self, images: Tensor, eps: float | Tensor, **options: Any) -> Tensor:
        return self.score.upper_bound(images, eps, **options)

    def part(self) -> Score | None:
        return self.score.part()

    def bound_from(self, bounds: Tensor) -> Tensor:
        return self.score.bound_from(bounds)


@contextmanager
def _compiler() -> Iterator[None]:
    """A study has many models: after eight kinds of passes in one process, others would not be compiled."""
    import torch._dynamo.config as dynamo_config  # slow to import, and for this alone
    from torch._dynamo.exc import TorchDynamoException

    with dynamo_config.patch(recompile_limit=64), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice about gradients and TF32, to the compiler itself
        try:
            yield
        except TorchDynamoException as error:
            raise _refusal(error) from error


def _refusal(error: Exception) -> ProodError:
    reason = " ".join(str(error).partition("\n\n")[0].split())  # what follows is advice
    return Unsupported(f"the passes of attacks cannot be compiled ({reason}): leave out --compile")
