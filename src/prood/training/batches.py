"""Batches as a pure function of the step: where a run is killed does not matter to what it sees next."""

from __future__ import annotations

import torch
from torch import Tensor

from prood import processes
from prood.data import Augment, ImageSet, Order, generator
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
        inside: ImageSet,
        outside: ImageSet | None,
        *,
        batch: int,
        seed: int,
        augment: Augment,
        noise: bool,
        device: torch.device,
    ) -> None:
        if batch % processes.world_size():
            raise ProodError(f"batch = {batch} must be a multiple of the {processes.world_size()} processes")
        if outside is not None and outside.shape != inside.shape:
            raise ProodError(
                f"{inside.name} and {outside.name} have images of different shapes, {inside.shape} and {outside.shape}"
            )
        self.seed, self.augment, self.noise, self.device = seed, augment, noise, device
        self.batch = batch
        self.sets = [_Stream(inside, INSIDE, batch, seed, device)]
        if outside is not None:
            self.sets.append(_Stream(outside, OUTSIDE, batch, seed, device))
        self.steps_per_epoch = self.sets[0].order.steps_per_epoch

    def __call__(self, step: int) -> tuple[Batch, Batch | None]:
        inside = self.sets[0].take(step, self.augment)
        if len(self.sets) == 1:
            return inside, None
        outside = self.sets[1].take(step, self.augment)
        return inside, Batch(outside.images, noise=self._noise(step, outside.images) if self.noise else None)

    def _noise(self, step: int, like: Tensor) -> Tensor:
        shape = (self.batch, *like.shape[1:])
        source = generator(self.seed, NOISE, step, device=self.device)
        noise = torch.rand(shape, generator=source, device=self.device) * 2 - 1
        return processes.own_rows(noise)


class _Stream:
    """One image set, kept on the device as bytes, in a seeded order."""

    def __init__(self, images: ImageSet, stream: int, batch: int, seed: int, device: torch.device) -> None:
        self.stream, self.batch, self.seed = stream, batch, seed
        self.order = Order(len(images), batch, seed * 2 + stream)
        self.images = images.images.to(device)
        self.labels = None if images.labels is None else images.labels.to(device)

    def take(self, step: int, augment: Augment) -> Batch:
        rows = processes.own_rows(self.order.rows(step)).to(self.images.device)
        draws = processes.own_rows(augment.draw(self.batch, generator(self.seed, self.stream, step)))
        images = self.images[rows].float() / 255
        return Batch(augment.apply(images, draws), None if self.labels is None else self.labels[rows])
