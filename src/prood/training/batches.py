"""Batches as a pure function of the step: where a run is killed does not matter to what it sees next."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from prood import processes
from prood.data import Augment, Images, Order, Prefetch, generator, stream
from prood.errors import Mismatch
from prood.methods import Batch
from prood.training.options import TrainOptions

INSIDE, OUTSIDE, NOISE = range(3)
"""Streams of random numbers that must not repeat each other."""


class Batches:
    """In- and out-distribution batches for each step, augmented, on the device.

    Orders, augmentations and noise are drawn for the global batch; each process keeps its own rows of them.
    """

    def __init__(
        self,
        inside: Images,
        outside: Images | None,
        options: TrainOptions,
        *,
        augment: Augment,
        noise: bool,
        device: torch.device,
        workers: int | None = None,
    ) -> None:
        batch, seed = options.batch, options.seed
        if batch % processes.world_size():
            raise Mismatch(f"batch = {batch} must be a multiple of the {processes.world_size()} processes")
        if outside is not None and outside.shape != inside.shape:
            fault = f"{outside.name} has images of shape {outside.shape}, but {inside.name} of shape {inside.shape}"
            raise Mismatch(f"{fault}: store them in that shape, or give a folder: of pictures, which are fitted")
        self.batch, self.seed, self.augment, self.noise, self.device = batch, seed, augment, noise, device
        on_gpu = device.type == "cuda"
        self.apply = augment.on_device if on_gpu else augment.apply
        if options.compile and on_gpu:
            self.apply = torch.compile(augment.on_device)

        def finish(uniform: Tensor) -> Tensor:
            draws = augment.choose(uniform)
            return augment.plan(draws, *inside.shape[1:]) if on_gpu else draws

        self.draws = Prefetch(self._uniform, device, finish)
        self.steps_per_epoch = len(inside) // batch
        sets = {INSIDE: inside} | ({} if outside is None else {OUTSIDE: outside})
        orders = {number: Order(len(images), batch, seed * 2 + number) for number, images in sets.items()}
        self.streams = [stream(sets[number], orders[number], device, workers=workers) for number in sets]
        # On a GPU many small operations on one batch take as long as on many: up to 2²⁵ pixel values wait there.
        values = math.prod(inside.shape) * batch * len(self.streams)
        self.together = max(1, min(Prefetch.steps // 4, 2**25 // values)) if on_gpu else 1
        self.first = -1
        self.made: list[tuple[Batch, Batch | None]] = []

    def __call__(self, step: int) -> tuple[Batch, Batch | None]:
        if not self.first <= step < self.first + len(self.made):
            self.first, self.made = step, self._make(range(step, step + self.together))
        batch_in, batch_out = self.made[step - self.first]
        if not self.noise:
            return batch_in, batch_out
        if batch_out is None:  # noise is for attacks: on the out-distribution, or on all there is
            return self._noisy(batch_in, step), None
        return batch_in, self._noisy(batch_out, step)

    def _make(self, steps: range) -> list[tuple[Batch, Batch | None]]:
        """The batches of these steps. Both sets at once, as it is the number of operations that costs."""
        taken = [[stream(step) for stream in self.streams] for step in steps]
        pixels = torch.cat([images for sets in taken for images, _ in sets])
        images = self.apply(pixels, torch.cat([self.draws(step) for step in steps]))
        parts = iter(torch.split(images, self.batch // processes.world_size()))
        batches = []
        for sets in taken:
            inside, *outside = (next(parts) for _ in sets)
            batches.append((Batch(inside, sets[0][1]), Batch(outside[0]) if outside else None))
        return batches

    def _uniform(self, step: int) -> Tensor:
        """The random numbers of both sets' augmentation, the rows of this process."""
        draw, sets = self.augment.uniform, range(len(self.streams))
        drawn = [draw(self.batch, generator(self.seed, set, step), outside=set == OUTSIDE) for set in sets]
        return torch.cat([processes.own_rows(rows) for rows in drawn])

    def _noisy(self, batch: Batch, step: int) -> Batch:
        source = generator(self.seed, NOISE, step, device=self.device)
        noise = torch.rand((self.batch, *batch.images.shape[1:]), generator=source, device=self.device) * 2 - 1
        return replace(batch, noise=processes.own_rows(noise))
