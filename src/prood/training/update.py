"""One step of training: the loss, its gradients and the update of the weights.

On a GPU a step is hundreds of small kernels, and to launch them one by one takes longer than to run them. So a compiled
step is captured once as a CUDA graph and then replayed as a whole, on inputs that are copied to where it expects them.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from prood import processes
from prood.methods import Batch, Objective, Step
from prood.training.options import TrainOptions

WARM_UP = 4
"""Steps that are run as they are before one is captured: compilers and libraries prepare themselves in them."""


class Update:
    """Calling it makes one step; `means` tells what the objective logged since it was last asked."""

    def __init__(
        self, model: nn.Module, objective: Objective, optimizer: Optimizer, options: TrainOptions, device: torch.device
    ) -> None:
        self.model, self.optimizer, self.device = model, optimizer, device
        self.loss_of = torch.compile(objective) if options.compile else objective
        self.options = options
        self.trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        # Gradients of several processes are averaged between backward pass and update, which is not captured.
        captures = options.compile and device.type == "cuda" and processes.world_size() == 1
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream(device) if captures else None  # type: ignore[no-untyped-call]
        self.held: tuple[Batch, Batch | None] | None = None
        self.epoch = torch.zeros((), device=device)
        self.names: list[str] = []
        self.sums = torch.zeros(0, device=device)
        self.count = 0  # of steps since the logs were read
        self.warm = 0

    def __call__(self, batch_in: Batch, batch_out: Batch | None, epoch: float, rate: float) -> None:
        self.epoch.fill_(epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
        self.count += 1
        if self.stream is None:
            self._run(batch_in, batch_out)
        else:
            self._hold(batch_in, batch_out)
            if self.graph is None:
                self._prepare(self.stream)
            else:
                self.graph.replay()

    def _hold(self, batch_in: Batch, batch_out: Batch | None) -> None:
        """Copy the batches to where the captured step reads them."""
        if self.held is None:
            self.held = _held(batch_in), None if batch_out is None else _held(batch_out)
            return
        for batch, place in zip((batch_in, batch_out), self.held, strict=True):
            for name, part in _parts(batch):
                getattr(place, name).copy_(part, non_blocking=True)

    def means(self) -> dict[str, float]:
        """The averages of the loss and of what the objective logged, since the last time. Waits for the device."""
        values = self.sums / self.count
        processes.average([values])
        self.sums.zero_()
        self.count = 0
        return dict(zip(self.names, values.tolist(), strict=True))

    def _run(self, batch_in: Batch, batch_out: Batch | None) -> None:
        compiler = _compiler() if self.options.compile else nullcontext()
        with compiler, torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.precision == "bfloat16"):
            loss, logs = self.loss_of(self.model, batch_in, batch_out, Step(self.epoch))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        processes.average(parameter.grad for parameter in self.trained if parameter.grad is not None)
        self.optimizer.step()
        values = torch.stack([value.detach().float() for value in (loss, *logs.values())])
        if not self.names:
            self.names = ["loss", *logs]
            self.sums = torch.zeros_like(values)
        self.sums += values

    def _prepare(self, stream: torch.cuda.Stream) -> None:
        """The first steps, on a stream of their own as capturing demands, and then the capture."""
        assert self.held is not None
        here = torch.cuda.current_stream(self.device)
        stream.wait_stream(here)
        if self.warm < WARM_UP:
            self.warm += 1
            with torch.cuda.stream(stream):
                self._run(*self.held)
        else:
            self.optimizer.zero_grad(set_to_none=True)  # so that gradients, too, live where the graph writes them
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream):
                self._run(*self.held)
        here.wait_stream(stream)
        if self.graph is not None:
            self.graph.replay()  # capturing only takes notes


@contextmanager
def _compiler() -> Iterator[None]:
    """How steps are compiled.

    A compiler would rather keep a tensor than compute it again from others that it keeps anyway, if the two uses are
    far apart; on a GPU it is memory that steps wait for, and here everything may be computed twice. And after eight
    kinds of steps in one process it would go on uncompiled; a study of many models may have more.
    """
    import torch._dynamo.config as dynamo_config  # slow to import, and for this alone
    import torch._functorch.config as functorch_config

    with functorch_config.patch(ban_recompute_used_far_apart=False), dynamo_config.patch(recompile_limit=64):
        yield


def _held(batch: Batch) -> Batch:
    """A copy to which later batches are copied; pixels channels last, as fast convolutions want them."""
    formats = {True: torch.channels_last, False: torch.contiguous_format}
    return replace(batch, **{name: part.clone(memory_format=formats[part.ndim == 4]) for name, part in _parts(batch)})


def _parts(batch: Batch | None) -> list[tuple[str, Tensor]]:
    return [(name, part) for name, part in vars(batch).items() if part is not None] if batch is not None else []


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
    """Batch norm over all processes, which so train as one does. torch's SyncBatchNorm is the same, only on GPUs."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        # Like torch's: statistics of a bfloat16 batch are float32, and the variance is taken of the centred values.
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


@contextmanager
def shared_batch_norm(model: nn.Module) -> Iterator[None]:
    """Every BatchNorm2d of the model uses the statistics of all processes; parameters and names stay the same."""
    layers = [layer for layer in model.modules() if type(layer) is nn.BatchNorm2d and processes.world_size() > 1]
    for layer in layers:
        layer.__class__ = GlobalBatchNorm2d
    yield
    for layer in layers:
        layer.__class__ = nn.BatchNorm2d
