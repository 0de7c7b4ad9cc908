"""Convolutions as products of matrices, for GPUs on which cuDNN is off.

Certificates cover plain sums, and cuDNN may transform. Without it torch's own convolution goes from image to image on
a GPU, two small kernels each, and waits more than it computes. Here the windows of many images are laid out by one copy
and multiplied by one batched product; the transpose is one such product, whose windows `F.fold` adds up. Either way an
output is the sum of its products and zeros, in some order, which is all that the error model asks (docs/soundness.md).

`strict` puts this in the place of the functions themselves, by a `TorchFunctionMode`: a deployed network of stock
layers, the rules of the bounds and what differentiates them all end in `F.conv2d` or `F.conv_transpose2d`, and none of
them has to know. On a CPU nothing is replaced.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

DEVICES = frozenset({"cuda"})
"""Types of devices on which convolutions are replaced. Tests add the CPU."""

LARGEST = 1 << 27
"""Numbers in the windows that are laid out at once, unless those of a single image are more: a GiB in float64."""

NARROW = 32
"""Inputs of an output, channels times kernel, up to which a convolution is a product of matrices on a GPU."""

Pair = tuple[int, int]
Function = Callable[..., Any]


def columns(x: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """The window of each output as a column, (N, C·kh·kw, H'·W'), as `F.unfold` has it."""
    if any(padding):
        x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    windows = x.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])  # a view, (N, C, H', W', kh, kw)
    return windows.permute(0, 1, 4, 5, 2, 3).reshape(len(x), x.shape[1] * kernel[0] * kernel[1], -1)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair) -> Tensor:
    """`F.conv2d` with plain sums; channels first, whatever the layout of the inputs."""
    kernel = (weight.shape[2], weight.shape[3])
    how = zip(x.shape[2:], kernel, stride, padding, strict=True)
    sides = tuple((size + 2 * pad - width) // step + 1 for size, width, step, pad in how)
    matrix = weight.flatten(1)

    def product(part: Tensor) -> Tensor:
        return (matrix @ columns(part, kernel, stride, padding)).reshape(len(part), -1, *sides)

    result = _in_pieces(product, x, matrix.shape[1] * sides[0] * sides[1])
    return result if bias is None else result + bias[:, None, None]


def convolve_transposed(
    y: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, output_padding: Pair
) -> Tensor:
    """`F.conv_transpose2d` with plain sums: every output sends its share to each input of its window.

    Rows and columns of the input that no window reaches, because the stride skips them at the end, get zero.
    """
    kernel = (weight.shape[2], weight.shape[3])
    how = zip(y.shape[2:], kernel, stride, padding, output_padding, strict=True)
    sides = tuple((size - 1) * step - 2 * pad + width + rest for size, width, step, pad, rest in how)
    matrix = weight.flatten(1).T

    def product(part: Tensor) -> Tensor:
        return F.fold(matrix @ part.flatten(2), sides, kernel, 1, padding, stride)

    result = _in_pieces(product, y, matrix.shape[0] * y.shape[2] * y.shape[3])
    return result if bias is None else result + bias[:, None, None]


def _in_pieces(function: Callable[[Tensor], Tensor], x: Tensor, size: int) -> Tensor:
    """A function of a batch that needs `size` numbers an image, a few images at a time."""
    count = min(max(1, LARGEST // size), 65_535)  # as far as a GPU's grid goes in the third direction
    return function(x) if len(x) <= count else torch.cat([function(part) for part in torch.split(x, count)])


def narrow_convolution(x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: Pair) -> Tensor:
    """`F.conv2d` for an image of few channels, in the form that a compiler makes the best of; channels last.

    The library's kernels are made for many channels. With three they take, on an H200, 1.5 times as long for outputs
    and 1.9 times as long for gradients as laying out the windows as rows, and a product.
    """
    _, _, *kernel = weight.shape
    down, across = padding
    framed = F.pad(x, (across, across, down, down))
    windows = framed.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])  # (N, C, H', W', kh, kw)
    rows = windows.permute(0, 2, 3, 1, 4, 5).flatten(3)
    fill = -rows.shape[3] % 16  # products want rows that begin where a memory transfer does
    rows, matrix = F.pad(rows, (0, fill)), F.pad(weight.flatten(1), (0, fill)).T
    result = rows.flatten(0, 2) @ matrix
    return result.reshape(*rows.shape[:3], len(weight)).permute(0, 3, 1, 2)


def plain_sums(device: torch.device) -> AbstractContextManager[Any]:
    """Inside, convolutions on this device are products of matrices, if it is one where that is faster."""
    return _Replaced(device) if device.type in DEVICES else nullcontext()


def own_functions() -> AbstractContextManager[Any]:
    """Inside, torch's own convolutions again, and without the small price that every function pays for `plain_sums`."""
    return torch._C.DisableTorchFunction()


class _Replaced(TorchFunctionMode):
    """Calls ours where torch would call its own. What ours cannot do, or would refuse, is left to torch."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device.type

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if (ours := _OURS.get(func)) is not None:
            x = args[0] if args else given["input"]
            batch = x.device.type == self.device and x.ndim == 4 and x.numel() > 0 and x.is_floating_point()
            if batch and (result := ours(*args, **given)) is not None:
                return result
        return func(*args, **given)


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    if isinstance(padding, str) or not _is_plain(input, weight, bias, dilation, groups):
        return None
    kernel, pads = (weight.shape[2], weight.shape[3]), pair(padding)
    fits = input.shape[1] == weight.shape[1] and _fits(input, kernel, pads)
    return convolve(input, weight, bias, pair(stride), pads) if fits else None


class _ConvTranspose2d(NamedTuple):
    """What `F.conv_transpose2d` is called with."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    output_padding: Any = 0
    groups: int = 1
    dilation: Any = 1


def _conv_transpose2d(*args: Any, **kwargs: Any) -> Tensor | None:
    x, weight, bias, stride, padding, output_padding, groups, dilation = _ConvTranspose2d(*args, **kwargs)
    steps, rest = pair(stride), pair(output_padding)
    possible = x.shape[1] == weight.shape[0] and all(more < step for more, step in zip(rest, steps, strict=True))
    if not possible or not _is_plain(x, weight, bias, dilation, groups):
        return None
    return convolve_transposed(x, weight, bias, steps, pair(padding), rest)


def _unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor | None:
    kernel, pads = pair(kernel_size), pair(padding)
    fits = pair(dilation) == (1, 1) and _fits(input, kernel, pads)
    return columns(input, kernel, pair(stride), pads) if fits else None


_OURS: dict[Function, Function] = {F.conv2d: _conv2d, F.conv_transpose2d: _conv_transpose2d, F.unfold: _unfold}


def _is_plain(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: Any, groups: int) -> bool:
    """Weights of the same format as the images, without gaps or groups."""
    alike = x.dtype == weight.dtype and (bias is None or bias.dtype == x.dtype)
    return alike and groups == 1 and pair(dilation) == (1, 1)


def _fits(x: Tensor, kernel: Pair, padding: Pair) -> bool:
    return x.shape[2] + 2 * padding[0] >= kernel[0] and x.shape[3] + 2 * padding[1] >= kernel[1]


def pair(value: int | tuple[int, ...] | list[int]) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])
