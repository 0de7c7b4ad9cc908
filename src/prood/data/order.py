"""The order of the batches, without state.

A batch is a function of (seed, step), so a run that resumes at any step sees the batches it would have seen, and two
processes agree on the global batch without a word between them.
"""

import hashlib
import operator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from prood.errors import BadValue


def generator(seed: int, *parts: int, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator for the stream named by these integers, the same in every process and on every machine.

    The seed is sha256 of the integers: Python's hash() is not stable, and sums like seed + step make streams of
    neighbouring seeds coincide. (PyTorch's CPU generator keeps 32 bits of a seed, so among 10,000 streams two are
    the same with a chance of about 1%.)
    """
    text = ",".join(str(operator.index(part)) for part in (seed, *parts))
    digest = hashlib.sha256(text.encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:4], "little"))


# An in- and an out-distribution are read in turn, and each walks through one epoch at a time.
@lru_cache(maxsize=4)
def _permutation(count: int, seed: int, epoch: int) -> Tensor:
    # Apart from what a caller draws with the same seed and the same small integers.
    return torch.randperm(count, generator=generator(seed, int.from_bytes(b"permutation"), epoch))


@dataclass(frozen=True)
class Order:
    """Which rows of a set of `count` images make up the batch of a step.

    Every epoch is a new permutation and its incomplete last batch is dropped. Steps may run on for as many epochs
    as one likes: a small out-distribution next to a big in-distribution is simply read more often.
    """

    count: int
    batch: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise BadValue(f"batch must be at least 1, not {self.batch}")
        if self.batch > self.count:
            raise BadValue(f"a batch of {self.batch} is more than all images: choose at most {self.count} images")

    @property
    def steps_per_epoch(self) -> int:
        return self.count // self.batch

    def rows(self, step: int) -> Tensor:
        """The rows of batch number `step`, counted from 0 over all epochs: int64, (batch,)."""
        if step < 0:
            raise BadValue(f"there is no step {step}: steps count from 0")
        epoch, place = divmod(step, self.steps_per_epoch)
        permutation = _permutation(self.count, self.seed, epoch)
        return permutation[place * self.batch : (place + 1) * self.batch].clone()
