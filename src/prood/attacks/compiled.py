"""A score whose search is compiled: for a GPU, and for attacks that make millions of passes.

A network as it is written runs its normalisations, activations and sums one by one, and reads and writes memory for
each. Compiled, they are one with their neighbours. That takes half a minute, when the first passes are made.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from prood.errors import ProodError, Unsupported
from prood.models import Score

SIZES = (128, 256, 512)
"""Rows of compiled passes; others are padded. Every size is compiled by itself, when it is first needed."""


class Compiled(Score):
    """The same score; only `quick`, by which attacks search, is compiled."""

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
