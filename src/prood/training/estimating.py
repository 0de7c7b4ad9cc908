"""What a training will take, before it takes it: a few real steps with few images, and the line through them."""

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

import torch
from torch import Tensor, nn

from prood import processes
from prood.data.pipeline import Prefetch
from prood.errors import BadValue
from prood.methods import Batch, Objective
from prood.methods.base import train_mode
from prood.training.batches import Batches
from prood.training.memory import Meter, free, held
from prood.training.options import TrainOptions
from prood.training.update import Update, shared_batch_norm

BUDGET = 4.0
"""Seconds of measuring after which no more images are tried at once; one measurement may take longer."""
GROWTH = 4  # from 2 images a step to 8, 32, … and at last to the recipe's batch


@dataclass(frozen=True)
class Estimate:
    """What the training will take: `seconds` for all `steps`, and at most `bytes` of memory at once.

    `bytes` is of the whole process (on a GPU, of what torch holds there), and `available` is what it could hold when
    this was measured; None where the machine does not tell. A compiled training takes less time than stated.
    """

    seconds_a_step: float
    steps: int
    bytes: int
    available: int | None = None
    device: str = "cpu"
    compiled: bool = False

    @property
    def seconds(self) -> float:
        return self.seconds_a_step * self.steps

    @property
    def fits(self) -> bool:
        """Whether the machine had the memory, as far as it tells."""
        return self.available is None or self.bytes <= self.available

    def __str__(self) -> str:
        most = "at most " if self.compiled else "about "
        time = f"{self.steps:,} steps of {duration(self.seconds_a_step)}, {most}{duration(self.seconds)} in all"
        line = f"estimate on {self.device}: {time}; peak memory about {size(self.bytes)}"
        if self.fits:
            return line
        return f"{line}, but there are only {size(self.available or 0)}: make train.batch smaller, or the network"


def duration(seconds: float) -> str:
    """As exact as an estimate is: 0.012 s, 3.4 s, 12 min, 5 h 20 min."""
    if seconds < 99.5:
        return f"{seconds:.2g} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min" if minutes >= 100 else f"{minutes} min"


def size(bytes: int) -> str:
    return f"{bytes / 1e9:.1f} GB" if bytes >= 1e9 else f"{bytes / 1e6:.0f} MB"


def measure(
    model: nn.Module, objective: Objective, batches: Batches, options: TrainOptions, *, start: int = 0
) -> Estimate:
    """Measure real steps of a copy of the training, from step `start` on: forward, backward, attacks, bounds, update.

    The model and all random numbers stay as they are. Steps have 2, 8, 32 … images of the first batch until the whole
    batch is reached, or `BUDGET` seconds are spent, or a step would take half of the free memory. Time and memory are
    then extrapolated from the last steps. Under torchrun all processes measure together.
    """
    device = batches.device
    batch_images = len(batches(start)[0].images)
    steps = max(1, round(options.epochs * batches.steps_per_epoch))
    last = (steps - 1) / batches.steps_per_epoch  # where ramps have ended and the costliest phase of a method has begun
    reading = _seconds_to_read(batches, start)
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), shared_batch_norm(twin := copy.deepcopy(model)):
        train_mode(twin)
        optimizer = options.make_optimizer(twin)
        update = Update(twin, objective, optimizer, replace(options, compile=False), device)
        base, left = held(device), free(device)
        meter = Meter(device)
        found: list[tuple[int, float, int]] = []  # images a step, seconds, peak bytes
        began = time.perf_counter()
        level = 0
        with _told(device):
            for count in [
                *takewhile(lambda count: count < batch_images, (2 * GROWTH**k for k in range(20))),
                batch_images,
            ]:
                batch_in, batch_out = batches(start)
                step = partial(update, _first(batch_in, count), batch_out and _first(batch_out, count), last, 0.0)
                for _ in range(1 if found else 2):  # the very first makes gradients and the optimiser's state
                    with meter.measuring() as taken:
                        step()
                    peak, level = taken()
                seconds = _quickest(step, device)
                found.append((count, seconds, peak))
                slower = seconds - found[-2][1] if len(found) > 1 else seconds
                next_seconds = 2 * (seconds + GROWTH * max(0.0, slower))  # a look runs the step twice or more
                next_bytes = GROWTH * (peak - level) + level
                spent = time.perf_counter() - began + next_seconds
                # From the first looks alone, the work that no image causes, and the work of other programs, would be
                # counted with each of the others.
                budget = BUDGET * max(1, 16 >> len(found) - 1)
                over = torch.tensor([spent > budget, left is not None and next_bytes > left / 2], dtype=torch.float32)
                processes.average([over])  # so that all of them stop together
                if over.any():
                    break
    count, seconds, peak = found[-1]
    if len(found) > 1:
        before, less_seconds, less_bytes = found[-2]
        more = (batch_images - count) / (count - before)
        seconds += min(more * max(0.0, seconds - less_seconds), seconds * (batch_images / count - 1))
        peak += round(more * max(0, peak - less_bytes))
    else:  # too slow, or too big, for a second look
        seconds *= batch_images / count
        peak = level + round((peak - level) * batch_images / count)
    own = sum(tensor.nbytes for tensor in (*twin.parameters(), *twin.buffers()))  # the copy's, which training has not
    return Estimate(
        seconds_a_step=seconds + reading,
        steps=steps - start,
        bytes=max(0, base - own) + peak,
        available=None if left is None else left + base,
        device=str(device),
        compiled=options.compile,
    )


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _quickest(step: Callable[[], object], device: torch.device) -> float:
    """The fastest of several steps, if they are quick: other work on the machine only slows a step down."""
    taken = [_seconds(step, device)]
    while processes.world_size() == 1 and (  # several take equally many steps
        (len(taken) < 5 and sum(taken) < 0.3) or (len(taken) < 2 and sum(taken) < BUDGET / 2)
    ):
        taken.append(_seconds(step, device))
    return min(taken)


def _seconds_to_read(batches: Batches, start: int) -> float:
    """For one step's images, read and augmented; of what is drawn ahead, the step's share."""
    first = _seconds(lambda: batches(start), batches.device)
    again = _seconds(lambda: batches(start + batches.together), batches.device)
    return again / batches.together + max(0.0, first - again) / Prefetch.steps


def _first(batch: Batch, count: int) -> Batch:
    """Its first images; copies, as slices would keep the whole batch."""
    parts = {name: part[:count].clone() for name, part in vars(batch).items() if isinstance(part, Tensor)}
    return replace(batch, **parts)


@contextmanager
def _told(device: torch.device) -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise BadValue(f"{device} lacks the memory for a step with two images: make the network smaller") from None
