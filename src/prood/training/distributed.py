"""Several processes as one: started by `torchrun`, each takes its rows of the global batch.

The result is that of one process with the same global batch, up to the order of summation: every random number is drawn
for the global batch, gradients are averaged, and batch norm uses the statistics of all processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def start(device: torch.device) -> None:
    """Join the process group that torchrun announces in the environment; do nothing in a single process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def stop() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    return rank() == 0


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def own_rows(rows: Tensor) -> Tensor:
    """This process's part of something that belongs to the global batch."""
    return rows[rank() :: world_size()]


def average(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its mean over all processes, in one message."""
    tensors = list(tensors)
    if world_size() == 1 or not tensors:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    flat /= world_size()
    sizes = [tensor.numel() for tensor in tensors]
    for tensor, part in zip(tensors, torch.split(flat, sizes), strict=True):
        tensor.copy_(part.view_as(tensor))


class _Mean(torch.autograd.Function):
    """The mean over all processes, and of its gradients. torch.distributed.nn had one, which is deprecated."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        mean = value / world_size()
        dist.all_reduce(mean)
        return mean

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Mean.forward(ctx, gradient)


class GlobalBatchNorm2d(nn.BatchNorm2d):
    """Batch norm over all processes. torch's SyncBatchNorm computes the same, but only on GPUs."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        # Like torch's: statistics of a bfloat16 batch are float32, and the variance is that of the centred values.
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        mean = _Mean.apply(x.mean((0, 2, 3)))  # type: ignore[no-untyped-call]
        centred = x - mean[:, None, None]
        variance = _Mean.apply(centred.square().mean((0, 2, 3)))  # type: ignore[no-untyped-call]
        count = input.numel() // input.shape[1] * world_size()
        with torch.no_grad():
            momentum = self.momentum or 0.0
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * count / (count - 1), momentum)
        scale = (variance + self.eps).rsqrt() * self.weight
        normalised: Tensor = centred * scale[:, None, None] + self.bias[:, None, None]
        return normalised.to(input.dtype)


def share_batch_norm(model: nn.Module) -> None:
    """Let every BatchNorm2d of the model use the statistics of all processes; parameters and names stay the same."""
    if world_size() > 1:
        for layer in model.modules():
            if type(layer) is nn.BatchNorm2d:
                layer.__class__ = GlobalBatchNorm2d


def unshare_batch_norm(model: nn.Module) -> None:
    for layer in model.modules():
        if type(layer) is GlobalBatchNorm2d:
            layer.__class__ = nn.BatchNorm2d  # type: ignore[assignment]
