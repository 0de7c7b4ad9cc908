"""The arithmetic that certificates cover: switched on for the process, refused where it cannot be had.

What torch may change about float32 are settings of the whole process. So they are counted: the first that enters
`strict` saves them, the last that leaves puts them back, and who is inside is told if somebody changed them meanwhile.
docs/soundness.md names every switch.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from prood.bounds.convolution import own_functions, plain_sums
from prood.bounds.rounding import NotCovered

HARMLESS = {
    "ONEDNN_DEFAULT_FPMATH_MODE": ("strict",),
    "DNNL_DEFAULT_FPMATH_MODE": ("strict",),
    "MKL_BLAS_COMPUTE_MODE": ("standard",),
    "NVIDIA_TF32_OVERRIDE": ("0",),
    "CUBLAS_EMULATE_SINGLE_PRECISION": ("0",),
    "CUBLAS_EMULATE_DOUBLE_PRECISION": ("0",),
}
"""Environment variables by which libraries take fewer digits, out of torch's reach, and their values that do not."""

_AT_START = {name: os.environ.get(name, "") for name in HARMLESS}  # libraries read theirs once, and keep it


class _Settings(NamedTuple):
    """Two interfaces set the precision of products. The newer one (torch 2.9) makes the older one unreadable where they
    disagree; then it is not the older one that was used, and there is nothing of it to restore (None)."""

    cudnn: bool
    nnpack: bool  # transforms where oneDNN is off
    products: str | None
    tf32: bool | None
    knobs: tuple[str | None, ...]  # None where this torch has no such knob

    @classmethod
    def now(cls) -> "_Settings":
        """As they are; but NNPACK is off from here on, for it can only be asked by setting it."""
        backends = torch.backends
        nnpack = backends.nnpack.set_flags(False)[0]  # type: ignore[no-untyped-call]
        precision, tf32 = _readable(torch.get_float32_matmul_precision), _readable(lambda: backends.cudnn.allow_tf32)
        knobs = tuple(getattr(knob, "fp32_precision", None) for knob in _knobs())
        return cls(backends.cudnn.enabled, nnpack, precision, tf32, knobs)

    def strict(self, *, cudnn: bool) -> "_Settings":
        """The same in full float32."""
        knobs = tuple(value and "ieee" for value in self.knobs)
        return _Settings(cudnn, False, self.products and "highest", None if self.tf32 is None else False, knobs)

    def where(self, now: "_Settings", before: "_Settings") -> "_Settings":
        """These, but what is not as it was before as it is now."""
        knobs = zip(self.knobs, now.knobs, before.knobs, strict=True)
        return _Settings(
            cudnn=self.cudnn if now.cudnn == before.cudnn else now.cudnn,
            nnpack=self.nnpack if now.nnpack == before.nnpack else now.nnpack,
            products=self.products if now.products == before.products else now.products,
            tf32=self.tf32 if now.tf32 == before.tf32 else now.tf32,
            knobs=tuple(own if new == old else new for own, new, old in knobs),
        )

    def put(self) -> None:
        """By the older interface where that was used, and then by the newer one where there is one."""
        if self.products is not None:
            torch.set_float32_matmul_precision(self.products)
        if self.tf32 is not None:
            torch.backends.cudnn.allow_tf32 = self.tf32
        for knob, value in zip(_knobs(), self.knobs, strict=True):
            if value is not None:
                knob.fp32_precision = value
        torch.backends.nnpack.set_flags(self.nnpack)  # type: ignore[no-untyped-call]
        torch.backends.cudnn.enabled = self.cudnn


def _knobs() -> list[Any]:
    backends = torch.backends
    found = [getattr(backends.cuda, "matmul", None), getattr(backends.cudnn, "conv", None)]
    return found + [getattr(backends.mkldnn, kind, None) for kind in ("matmul", "conv")]


def _readable(setting: Callable[[], Any]) -> Any:
    try:
        return setting()
    except RuntimeError:
        return None


class _Process:
    """Who is inside, in all threads, and what is put back when the last one leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = self._plain = 0  # the latter without cuDNN
        self._disturbed = 0  # how often somebody else was seen to have changed a setting
        self._found = self._ours = _Settings(True, False, None, None, ())
        self._wanted: _Settings | None = None  # what was put last, unless it does not hold any more

    def enter(self, plain: bool) -> int:
        """What `leave` is to be given."""
        with self._lock:
            if self._inside:
                self._look()
            else:
                self._found = _Settings.now()
            self._inside, self._plain = self._inside + 1, self._plain + plain
            self._put()
            return self._disturbed

    def leave(self, plain: bool, entered: int) -> bool:
        """Whether the arithmetic was strict all the time, as far as can be seen."""
        with self._lock:
            self._look()
            self._inside, self._plain = self._inside - 1, self._plain - plain
            if self._inside:
                self._put()
            else:
                self._found.put()
                self._wanted = None
            return self._disturbed == entered

    def _put(self) -> None:
        wanted = self._found.strict(cudnn=self._found.cudnn and not self._plain)
        if wanted != self._wanted:
            wanted.put()
            self._wanted, self._ours = wanted, _Settings.now()  # read again, for one interface shows in the other

    def _look(self) -> None:
        """What somebody set in the meantime is what they want afterwards; those inside have to know."""
        now = _Settings.now()
        if now != self._ours:
            self._disturbed, self._wanted = self._disturbed + 1, None
            self._found = self._found.where(now, self._ours)

    def aside(self, count: int) -> None:
        """`count` callers no longer need cuDNN switched off; a negative count means that they need it again."""
        if not count:
            return
        with self._lock:
            self._look()
            self._plain -= count
            self._put()

    def forked(self) -> None:
        """In a child process no other thread lives on that could give the lock back."""
        self._lock = threading.Lock()


_PROCESS = _Process()
_MINE = threading.local()  # `plain`: how often this thread is inside without cuDNN
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.forked)


@contextmanager
def strict(device: torch.device, *, transforms: bool = False) -> Iterator[None]:
    """Arithmetic that certificates cover: no autocast, no TF32, and on a GPU no cuDNN, which may transform.

    What certifies runs in it by itself. Run the deployed network in it, too, where the settings are not your own. On a
    GPU convolutions become products of matrices (`convolution`). With `transforms`, cuDNN stays on instead: full
    float32, but not covered.

    Any number of threads may be inside. Where another thread changes torch's settings meanwhile, leaving is an error.
    """
    if not transforms:
        check_environment(os.environ)
        check_environment(_AT_START)
    plain = device.type == "cuda" and not transforms
    before: int = getattr(_MINE, "plain", 0)
    entered, undisturbed = _PROCESS.enter(plain), True
    try:
        _MINE.plain = before + plain
        with torch.autocast(device.type, enabled=False), nullcontext() if transforms else plain_sums(device):
            yield
    finally:
        _MINE.plain = before
        undisturbed = _PROCESS.leave(plain, entered)
    if not undisturbed and not transforms:
        raise NotCovered("another thread changed torch's precision during a proof: set it before, and prove again")


@contextmanager
def searching(device: torch.device) -> Iterator[None]:
    """Proofs run without cuDNN, which may transform sums; a search need not, unless another thread is at a proof."""
    if device.type != "cuda":
        yield
        return
    mine: int = getattr(_MINE, "plain", 0)
    _PROCESS.aside(mine)
    try:
        with own_functions():
            yield
    finally:
        _PROCESS.aside(-mine)


def check_environment(variables: Mapping[str, str]) -> None:
    """Refuse variables by which a library takes fewer digits than float32 has, whatever torch asks it for."""
    for name, harmless in HARMLESS.items():
        value = variables.get(name, "")
        if value and value.strip().lower() not in harmless:
            raise NotCovered(
                f"certificates do not cover {name}={value!r}, which takes fewer digits than float32 has: "
                "unset it before Python starts"
            )


def check_deployed(network: nn.Module, images: Tensor) -> None:
    """Refuse what the model does not cover: other precisions than float32, and bounds that drop subnormal numbers."""
    if _flushes(images.device):
        # The network may flush them; the bounds must not, for they count on 0 being 0.
        raise NotCovered(
            "certificates need subnormal numbers: do not call torch.set_flush_denormal(True) where they are computed"
        )
    computed = [type(layer).__name__ for layer in network.modules() if is_parametrized(layer)]
    if computed:  # in float64 they would be computed anew, with other rounding
        fix = "use torch.nn.utils.parametrize.remove_parametrizations, or arithmetic='plain'"
        raise NotCovered(f"certificates do not cover the parametrised weights of {computed[0]}: {fix}")
    weights = (tensor for tensor in (*network.parameters(), *network.buffers()) if tensor.is_floating_point())
    wrong = {str(tensor.dtype) for tensor in (*weights, images)} - {"torch.float32"}
    if wrong:
        kinds = ", ".join(sorted(wrong))
        raise NotCovered(f"certificates cover float32, not {kinds}: convert with .float(), or use arithmetic='plain'")


def _flushes(device: torch.device) -> bool:
    """On a CPU it is a setting of each thread, and workers keep what the thread that started them had."""
    count = 1 if device.type != "cpu" else 32768 * torch.get_num_threads()  # a share for each worker
    values = torch.full((count,), 2.0**-140, dtype=torch.float32, device=device) * 1
    return not bool(values.view(torch.int32).all())  # by their bits: a comparison would flush as well
