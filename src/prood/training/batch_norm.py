"""Batch norm with the statistics of all processes: what makes several of them train as one does."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from prood import processes


class _Mean(torch.autograd.Function):
    """The mean over all processes, and of its gradients. torch.distributed.nn had one, which is deprecated."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        mean = value / processes.world_size()
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
        count = input.numel() // input.shape[1] * processes.world_size()
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
    if processes.world_size() > 1:
        for layer in model.modules():
            if type(layer) is nn.BatchNorm2d:
                layer.__class__ = GlobalBatchNorm2d


def unshare_batch_norm(model: nn.Module) -> None:
    for layer in model.modules():
        if type(layer) is GlobalBatchNorm2d:
            layer.__class__ = nn.BatchNorm2d  # type: ignore[assignment]
