"""How much memory this process, or its GPU, holds, how much there is left, and how much a step takes."""

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def held(device: torch.device) -> int:
    """Bytes that this process holds: of the GPU's memory for a GPU, else of the machine's; 0 where nothing tells."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    with suppress(OSError):
        import os

        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(ImportError):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return 0


def free(device: torch.device) -> int | None:
    """Bytes that this process could still take, within the limit of its container; None where nothing tells."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024)
    with suppress(OSError, ValueError):  # "max" means no limit
        limit, current = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        found.append(max(0, limit - current))
    return min(found, default=None)


class Taken(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors that are made under it: those alive now (`level`), and the most at once (`peak`).

    What an operation needs for itself and gives back at its end is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.level = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            if storage._cdata not in given and storage._cdata not in self.known:  # else a view, or an update in place
                self.known.add(storage._cdata)
                self.level += storage.nbytes()
                self.peak = max(self.peak, self.level)
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes()).atexit = False
        return result

    def _freed(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.level -= size


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class Meter:
    """Calls functions and tells what they took at most, and what they left behind, since the meter was made."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.on_gpu = device.type == "cuda"
        self.taken = Taken()
        self.start = held(device)

    @contextmanager
    def measuring(self) -> Iterator[Callable[[], tuple[int, int]]]:
        """Yields a function that gives, afterwards, (peak, level) in bytes."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
            yield lambda: (
                torch.cuda.max_memory_allocated(self.device) - self.start,
                torch.cuda.memory_allocated(self.device) - self.start,
            )
        else:
            self.taken.peak = self.taken.level
            with self.taken:
                yield lambda: (self.taken.peak, self.taken.level)
