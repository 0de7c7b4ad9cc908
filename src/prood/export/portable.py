"""Functions of torch in steps that ONNX has, and that every runtime rounds as the proof assumes."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from prood.bounds.rounding import SMALLEST


class Portable(TorchFunctionMode):
    """What an export cannot express, by something that it can.

    `nextafter` becomes a step of at least as much: all that the rules do with it is to move ends outwards. Halves of a
    batch are taken by a shape, and not by the number of images in it. The piece of a gate is counted.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nextafter:
            x, towards = args
            step = x.abs() * torch.finfo(x.dtype).eps + SMALLEST
            return torch.where(towards > 0, x + step, x - step)
        if func is Tensor.chunk and args[1:] == (2,):
            return args[0].unflatten(0, (2, -1)).unbind(0)
        if func is torch.bucketize and not kwargs:
            x, ends = args
            return (x[..., None] > ends).sum(-1)
        if func is Tensor.diff and len(args) == 1 and not kwargs:
            return args[0][1:] - args[0][:-1]
        return func(*args, **(kwargs or {}))


def sigmoid(x: Tensor) -> Tensor:
    """σ(x) with all its digits, however small: the runtime's is 1 − σ(−x) below zero, and 0 from −37 on."""
    small = torch.exp(-x.abs())
    return torch.where(x < 0, small, 1.0) / (1 + small)
