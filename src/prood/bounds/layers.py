"""Four layers that torch.nn lacks and certified discriminators need."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.errors import BadValue


class Normalise(nn.Module):
    """(x − mean) / std per channel: part of the network, so that callers and bounds see images in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        numbers = torch.finfo(torch.float32)  # in which what is smaller may be 0
        if len(mean) != len(std) or not all(numbers.tiny <= s <= numbers.max for s in std):
            raise BadValue("Normalise needs one mean and one positive std per channel")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim > 2 and x.shape[-3] != len(self.mean) > 1:  # broadcasting would make as many of one
            raise ValueError(f"the network takes images of {len(self.mean)} channels, not {x.shape[-3]}")
        return (x - self.mean) / self.std

    def extra_repr(self) -> str:
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"


class BlockedLinear(nn.Linear):
    """A linear layer that adds up in two stages, blocks of about √n inputs first and then the blocks.

    The rounding error of a sum in float32 grows with its length, in whatever order it is formed; √n + √n terms have a
    small fraction of the error of n. Only so does a certificate for float32 cost next to nothing. While it is trained,
    nothing is certified, and the sum is a single product of matrices.
    """

    @property
    def block(self) -> int:
        """The largest divisor of the number of inputs that is not above its root."""
        return next(size for size in range(math.isqrt(self.in_features), 0, -1) if self.in_features % size == 0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return F.linear(x, self.weight, self.bias)
        total = self.product(x, self.weight)
        return total if self.bias is None else total + self.bias

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """The sum of this layer, with another weight and no bias."""
        if self.training:
            return F.linear(x, weight)
        blocks = x.reshape(len(x), self.in_features // self.block, self.block).transpose(0, 1)
        weights = weight.reshape(self.out_features, -1, self.block).permute(1, 2, 0)
        return torch.bmm(blocks, weights).sum(0)


class NegativeLinear(nn.Module):
    """A linear layer whose weights are −exp(h), hence strictly negative (below Eq. 5 of the paper).

    On top of a ReLU it never exceeds its bias, and it falls without limit in every direction in which some
    unit below keeps growing: this is what makes the confidence converge to 1/K far away from all data.
    """

    def __init__(self, in_features: int, out_features: int = 1, *, bias: float = 3.0) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        limit = 1 / math.sqrt(in_features)  # torch's default for a Linear: the weights start close to −1
        self.log_weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-limit, limit))
        self.bias = nn.Parameter(torch.full((out_features,), bias))

    @property
    def weight(self) -> Tensor:
        return -self.log_weight.exp()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class Residual(nn.Module):
    """The sum of two branches: body(x) + shortcut(x).

    With an in-place layer anywhere inside, the body gets a copy: it must not overwrite what the shortcut reads.
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: Tensor) -> Tensor:
        in_place = any(getattr(layer, "inplace", False) for layer in self.modules())
        total: Tensor = self.body(x.clone() if in_place else x) + self.shortcut(x)
        return total
