"""Batches as a pure function of the step: where a run is killed does not matter to what it sees next."""

from __future__ import annotations

import torch
from torch import Tensor

from prood import processes
from prood.data import Augment, Images, Order, generator, stream
from prood.errors import ProodError
from prood.training.objectives import Batch

# Streams of random numbers that must not repeat each other.
INSIDE, OUTSIDE, NOISE = range(3)


class Batches:
    """In- and out-distribution batches for each step, augmented, on the device.

    Orders, augmentations and noise are drawn for the global batch; each process keeps its own rows of them.
    """

    def __init__(
        self,
        inside: Images,
        outside: Images | None,
        *,
        batch: int,
        seed: int,
        augment: Augment,
        noise: bool,
        device: torch.device,
        workers: int | None = None,
        compile: bool = False,
    ) -> None:
        if batch % processes.world_size():
            raise ProodError(f"batch = {batch} must be a multiple of the {processes.world_size()} processes")
        if outside is not None and outside.shape != inside.shape:
            raise ProodError(
                f"{inside.name} and {outside.name} have images of different shapes, {inside.shape} and {outside.shape}"
            )
        self.seed, self.augment, self.noise, self.device = seed, augment, noise, device
        self.batch = batch
        self.on_device = torch.compile(augment.on_device) if compile else None
        self.steps_per_epoch = len(inside) // batch
        self.streams = [
            stream(images, Order(len(images), batch, seed * 2 + number), device, workers=workers)
            for number, images in ((INSIDE, inside), (OUTSIDE, outside))
            if images is not None
        ]

    def __call__(self, step: int) -> tuple[Batch, Batch | None]:
        taken = [stream(step) for stream in self.streams]
        draws = [self.augment.draw(self.batch, generator(self.seed, which, step)) for which in range(len(taken))]
        # Both sets at once, because on tensors this small it is the number of operations that costs.
        images = self._augmented(
            torch.cat([images for images, _ in taken]), torch.cat([processes.own_rows(rows) for rows in draws])
        )
        inside, *outside = torch.split(images, self.batch // processes.world_size())
        batch_in = Batch(inside, taken[0][1])
        if not outside:
            return batch_in, None
        return batch_in, Batch(outside[0], noise=self._noise(step, outside[0]) if self.noise else None)

    def _augmented(self, images: Tensor, draws: Tensor) -> Tensor:
        if self.device.type != "cuda" or self.on_device is None:
            return self.augment.apply(images, draws)
        plan = self.augment.plan(draws, *images.shape[2:]).pin_memory()
        augmented: Tensor = self.on_device(images, plan.to(self.device, non_blocking=True))
        return augmented

    def _noise(self, step: int, like: Tensor) -> Tensor:
        shape = (self.batch, *like.shape[1:])
        source = generator(self.seed, NOISE, step, device=self.device)
        noise = torch.rand(shape, generator=source, device=self.device) * 2 - 1
        return processes.own_rows(noise)
