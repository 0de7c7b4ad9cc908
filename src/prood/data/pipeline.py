"""The images of a step, on the device.

Small images live on the device as bytes. What is too big for that is read by worker processes, ahead of time, into
pinned memory. Either way the images of step n are a function of (seed, n), each process reads its own rows alone, and a
stream may be entered at any step: that is how a killed run goes on in the middle of an epoch.
"""

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from prood import processes
from prood.data.images import ImageSet
from prood.data.order import Order
from prood.data.stored import Images, StoredSet
from prood.errors import BadValue, ProodError

IN_MEMORY = 2**29
"""Stored sets up to this many bytes, half a GiB, are read once and kept on the device."""


class Stream(Protocol):
    """Bytes (N, C, H, W) and perhaps labels, on the device: this process's rows of the batch of a step."""

    def __call__(self, step: int) -> tuple[Tensor, Tensor | None]: ...


def stream(images: Images, order: Order, device: torch.device, *, workers: int | None = None) -> Stream:
    """The batches of `images` in this order; `workers` is the number of processes that read what stays on disk."""
    if isinstance(images, StoredSet):
        if images.bytes > IN_MEMORY:
            return _FromDisk(
                images.prepared(often=True), order, device, default_workers() if workers is None else workers
            )
        images = images.load()
    return _OnDevice(images, order, device)


def default_workers() -> int:
    """One a core, shared among the processes on this machine, and at most eight: a GPU seldom needs more."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


class Prefetch:
    """A tensor for each step, made and sent to the device for many steps at once: one by one, it is calls that cost.

    `make` gives the tensor of a step; `finish` turns those of many, one below the other, into what is sent.
    """

    steps = 64

    def __init__(
        self, make: Callable[[int], Tensor], device: torch.device, finish: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.make, self.device, self.finish = make, device, finish
        self.first = -1
        self.made: tuple[Tensor, ...] = ()

    def __call__(self, step: int) -> Tensor:
        if not self.first <= step < self.first + len(self.made):
            many = [self.make(one) for one in range(step, step + self.steps)]
            finished = torch.cat(many) if self.finish is None else self.finish(torch.cat(many))
            if self.device.type == "cuda":
                finished = finished.pin_memory()  # from other memory a copy would wait for all that was asked before
            self.made = torch.split(finished.to(self.device, non_blocking=True), len(many[0]))
            self.first = step
        return self.made[step - self.first]


class _OnDevice:
    def __init__(self, images: ImageSet, order: Order, device: torch.device) -> None:
        self.rows = Prefetch(lambda step: processes.own_rows(order.rows(step)), device)
        self.images = images.images.to(device)
        self.labels = None if images.labels is None else images.labels.to(device)

    def __call__(self, step: int) -> tuple[Tensor, Tensor | None]:
        rows = self.rows(step)
        return self.images[rows], None if self.labels is None else self.labels[rows]


class _FromDisk:
    """Reads in the order of the steps, ahead of them; asked for another step, it starts anew from there."""

    def __init__(self, images: StoredSet, order: Order, device: torch.device, workers: int) -> None:
        if workers < 0:
            raise BadValue(f"{workers} worker processes cannot read images: choose at least 0")
        self.images, self.order, self.device, self.workers = images, order, device, workers
        self.expected = -1
        self.batches: Iterator[Tensor | ProodError] = iter(())

    def __call__(self, step: int) -> tuple[Tensor, Tensor | None]:
        if step != self.expected:
            order = self.order  # not by `self`: a cycle would be left to the collector, which takes 5 s a worker
            loader: DataLoader[Tensor | ProodError] = DataLoader(
                _Rows(self.images),
                sampler=(processes.own_rows(order.rows(one)).tolist() for one in count(step)),
                batch_size=None,
                num_workers=self.workers,
                prefetch_factor=4 if self.workers else None,  # batches that each worker reads ahead
                pin_memory=self.device.type == "cuda",
            )
            self.batches = iter(loader)
        try:
            images = next(self.batches)
        except RuntimeError as error:  # what DataLoader says when a worker was killed
            fault = f"a process that reads {self.images.name} has died"
            raise ProodError(f"{fault}: try fewer --workers ({error})") from error
        if isinstance(images, ProodError):
            raise images
        self.expected = step + 1
        labels = self.images.labels
        if labels is not None:
            labels = labels[processes.own_rows(self.order.rows(step))].to(self.device)
        return images.to(self.device, non_blocking=True), labels


class _Rows(Dataset[Tensor | ProodError]):
    """Runs in the workers. An error is handed over as it is; raised there, it would come back as a traceback."""

    def __init__(self, images: StoredSet) -> None:
        self.images = images

    def __getitem__(self, rows: list[int]) -> Tensor | ProodError:
        try:
            return self.images.take(rows)
        except ProodError as error:
            return error
