"""The layers of a discriminator as plain arrays: an affine map with its parts, or a ReLU.

All maps take and return float64 arrays with a leading axis of rows. A weight part is `signed` (W), `absolute` (|W|) or
`pattern` (1 where W ≠ 0): bounds and the bounds of rounding errors are made of these three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from prood.certification.verify.exact import Array

Part = Literal["signed", "absolute", "pattern"]
Shape = tuple[int, ...]


def _part(weight: Array, part: Part) -> Array:
    if part == "signed":
        return weight
    return np.abs(weight) if part == "absolute" else (weight != 0).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Affine:
    """x ↦ Wx + b on arrays of shape `inside`, to arrays of shape `outside`."""

    inside: Shape
    outside: Shape

    @property
    def bias(self) -> Array:
        return np.zeros(self.outside)

    def map(self, x: Array, part: Part = "signed") -> Array:
        """Wx, |W|x or the sum of x where W ≠ 0; without the bias."""
        raise NotImplementedError

    def adjoint(self, slope: Array) -> Array:
        """Wᵀs"""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Normalise(Affine):
    """(x − mean) / std, std > 0"""

    mean: Array  # (C, 1, 1)
    std: Array

    @property
    def bias(self) -> Array:
        return np.broadcast_to(-self.mean / self.std, self.outside)

    def map(self, x: Array, part: Part = "signed") -> Array:
        return x if part == "pattern" else x / self.std

    def adjoint(self, slope: Array) -> Array:
        return slope / self.std


@dataclass(frozen=True, eq=False)
class Convolution(Affine):
    """3×3 with zero padding of 1, as sums over patches: one matrix product."""

    weight: Array  # (out, in, 3, 3)
    offsets: Array  # (out,)
    stride: int

    @property
    def bias(self) -> Array:
        return np.broadcast_to(self.offsets[:, None, None], self.outside)

    def map(self, x: Array, part: Part = "signed") -> Array:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        patches = patches[:, :, :: self.stride, :: self.stride].transpose(0, 2, 3, 1, 4, 5)
        weight = _part(self.weight, part).reshape(self.outside[0], -1)
        flat = patches.reshape(len(x) * self.outside[1] * self.outside[2], -1) @ weight.T
        return flat.reshape(len(x), *self.outside[1:], self.outside[0]).transpose(0, 3, 1, 2)

    def adjoint(self, slope: Array) -> Array:
        (channels, height, width), (out, rows, columns) = self.inside, self.outside
        flat = slope.transpose(0, 2, 3, 1).reshape(-1, out) @ self.weight.reshape(out, -1)
        patches = flat.reshape(len(slope), rows, columns, channels, 3, 3).transpose(0, 3, 1, 2, 4, 5)
        # A row or column more than the padding needs, where the stride leaves the last patch short of the edge.
        total = np.zeros((len(slope), channels, height + 3, width + 3))
        step = self.stride
        for i in range(3):
            for j in range(3):
                total[:, :, i : i + step * rows : step, j : j + step * columns : step] += patches[..., i, j]
        return total[:, :, 1 : height + 1, 1 : width + 1]


@dataclass(frozen=True, eq=False)
class Pool(Affine):
    """The mean of squares of `side`×`side`; rows and columns at the end that fill no square are left out."""

    side: int

    def map(self, x: Array, part: Part = "signed") -> Array:
        (rows, columns), side = self.outside[1:], self.side
        squares = x[:, :, : side * rows, : side * columns].reshape(len(x), self.outside[0], rows, side, columns, side)
        total = squares.sum((3, 5))
        return np.asarray(total if part == "pattern" else total / side**2)

    def adjoint(self, slope: Array) -> Array:
        side = self.side
        total = np.zeros((len(slope), *self.inside))
        shares = (slope / side**2).repeat(side, 2).repeat(side, 3)
        total[:, :, : side * self.outside[1], : side * self.outside[2]] = shares
        return total


@dataclass(frozen=True, eq=False)
class Linear(Affine):
    """On the flattened input.

    `spread` > 0: the deployed weight lies anywhere between W and (1 + spread)·W, W ≤ 0. `block` > 0: the deployed layer
    adds up `block` products at a time, and then the blocks; each in any order.
    """

    weight: Array  # (out, in)
    offsets: Array  # (out,)
    spread: float = 0.0
    block: int = 0

    @property
    def bias(self) -> Array:
        return self.offsets

    def map(self, x: Array, part: Part = "signed") -> Array:
        return x.reshape(len(x), -1) @ _part(self.weight, part).T

    def adjoint(self, slope: Array) -> Array:
        return (slope @ self.weight).reshape(len(slope), *self.inside)


@dataclass(frozen=True, eq=False)
class ReLU:
    """max(x, 0), which float32 computes exactly."""


Layer = Affine | ReLU


@dataclass(frozen=True, eq=False)
class Network:
    """g, for images of shape (C, H, W): its last layer is a `Linear` with one output and weights ≤ 0 after a ReLU."""

    layers: tuple[Layer, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        first = self.layers[0]
        assert isinstance(first, Affine)
        channels, height, width = first.inside
        return channels, height, width

    @property
    def in_blocks(self) -> Network:
        """The same network with the hidden linear layers adding up in two stages, as Prood's discriminators do.

        A block is the largest divisor of the number of inputs that is not above its root.
        """
        layers = list(self.layers)
        for place, layer in enumerate(layers):
            if isinstance(layer, Linear) and not layer.spread:
                inputs = layer.weight.shape[1]
                block = next(size for size in range(math.isqrt(inputs), 0, -1) if inputs % size == 0)
                layers[place] = replace(layer, block=block)
        return Network(tuple(layers))
