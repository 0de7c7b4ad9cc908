"""Several processes as one: started by `torchrun`, each takes its rows of the common work.

In a single process nothing here does anything.
"""

import atexit
import importlib
import os
from collections.abc import Iterable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from prood.errors import UnknownName


def device(name: str | None) -> torch.device:
    """The device asked for, or the GPU that torchrun means for this process, or the CPU."""
    if name == "cuda" or (name is None and torch.cuda.is_available()):
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
    try:
        found = torch.device(name or "cpu")
        torch.empty(0, device=found).cpu()  # not so on a device that only knows shapes
    except (RuntimeError, AssertionError):
        raise UnknownName(f"there is no device {name!r} here: choose cpu, or cuda where a GPU is installed") from None
    return found


def start(device: torch.device) -> None:
    """Join the process group that torchrun announces in the environment; do nothing in a single process."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        # Imported later (every optimizer does), this module would keep the group as a default argument, and with it
        # threads that outlive `stop` and may end the process with an abort after all its work is done.
        importlib.import_module("torch.distributed.nn.functional")
        # However long the others compute, nobody gives up on them; when one dies, torchrun ends all.
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(days=30))
        if device.type != "cuda":  # nor may they where a program ends without `stop`; NCCL might wait for the others
            atexit.register(stop)


def announced() -> tuple[int, int]:
    """This process's number among those that torchrun has started, and how many there are; it does not join them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


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


def total(tensor: Tensor) -> Tensor:
    """The sum over all processes."""
    if world_size() > 1:
        tensor = tensor.clone()
        dist.all_reduce(tensor)
    return tensor
