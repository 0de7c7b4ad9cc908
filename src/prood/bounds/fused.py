"""The ReLU of boxes and of planes, and a first convolution, in the form that a compiler makes the best of.

It makes one pass over memory of such a ReLU by itself, and so it needs neither the tricks of the eager form nor
gradients of its own. (A torch.autograd.Function would have been the natural place for those, but some versions of
torch.compile get its gradients silently wrong.) Outputs have the type of the inputs, so that what is kept for the
backward pass is what the convolutions have made, in half precision where they are.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from prood.bounds.box import widen

NARROW = 32
"""Inputs of an output, channels times kernel, up to which a convolution is a product of matrices on a GPU."""


def narrow_convolution(x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, int]) -> Tensor:
    """`F.conv2d` for an image of few channels; channels last.

    The library's kernels are made for many channels. With three they take, on an H200, 1.5 times as long for outputs
    and 1.9 times as long for gradients as laying out the windows as rows, and a product.
    """
    _, _, *kernel = weight.shape
    down, across = padding
    framed = pad(x, (across, across, down, down))
    windows = framed.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])  # (N, C, H', W', kh, kw)
    rows = windows.permute(0, 2, 3, 1, 4, 5).flatten(3)
    fill = -rows.shape[3] % 16  # products want rows that begin where a memory transfer does
    rows, columns = pad(rows, (0, fill)), pad(weight.flatten(1), (0, fill)).T
    result = rows.flatten(0, 2) @ columns
    return result.reshape(*rows.shape[:3], len(weight)).permute(0, 3, 1, 2)


def box_relu(points: Tensor, middle: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Points, and centres and radii of boxes → centres (points first) and radii behind a ReLU.

    With h = relu(c + r)/2 they are c and r if c > r, else h and h; see `activations._BoxReLU`.
    """
    half = (widen(middle) + radius).clamp(min=0) * 0.5
    # Not by maximum and minimum, whose gradients are not channels last.
    active = middle > radius
    moved = torch.where(active, middle, half.to(middle.dtype))
    return torch.cat([points.clamp(min=0), moved]), torch.where(active, radius, half.to(radius.dtype))


def plane_relu(slope: Tensor, middle: Tensor, radius: Tensor, alpha: Tensor | None) -> tuple[Tensor, Tensor]:
    """The slopes of planes over the output → over the input [c − r, c + r] of a ReLU, and what is added to the offsets.

    Positive slopes take the chord h/(h − l) with l = min(c − r, 0) and h = max(c + r, 0), which lies −hl/(h − l) above
    zero at zero; negative ones the line `alpha`, or 1 where c > 0 and 0 elsewhere.
    """
    middle = widen(middle)
    low, high = (middle - radius).clamp(max=0), (middle + radius).clamp(min=0)
    chord = high / span(low, high)
    lower = (middle > 0).to(chord.dtype) if alpha is None else alpha
    # In the type of the slopes, which the next convolution takes: a copy in another type would be one pass more.
    behind = (torch.where(slope > 0, chord, lower) * slope).to(slope.dtype)
    if behind.ndim == 4:
        behind = behind.contiguous(memory_format=torch.channels_last)
    return behind, (-widen(slope).clamp(min=0) * chord * low).flatten(1).sum(1)


def span(low: Tensor, high: Tensor) -> Tensor:
    """high − low, or 1 where both are zero: divided by something tiny instead, gradients would overflow there."""
    width = high - low
    return torch.where(width > 0, width, 1)


def parts(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The points and the middles of the boxes.

    Cut once for all that follows, so that the gradient is put together once, channels last like its parts. That of one
    part alone would be filled up with zeros in another order.
    """
    points, middle = torch.split(centre, [len(centre) - len(radius), len(radius)])
    return points, middle
