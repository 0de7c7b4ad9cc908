"""Rounding errors: how far what float32 hardware returns may lie from exact arithmetic.

The model (docs/soundness.md): every product and every sum of the deployed network is one IEEE operation in float32, in
any order, with or without fused multiply-add, with or without flushing subnormal numbers to zero. A layer whose output
is a sum of n products that are not exactly zero, and a bias, then returns its exact value up to

    u′·(n·max(P, N) + Σ|wᵢxᵢ|),  u′ = u/(1 − 2(n + 2)u),  u = 2⁻²⁴,

where P and N are the sums of the positive and of the negative terms: each of the n additions rounds a partial sum, and
in whatever order, partial sums lie in [−N, P]. What is not covered (TF32, half precision, Winograd and Fourier
transforms) `prood.bounds.arithmetic` switches off or refuses.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from prood.errors import Unsupported

UNIT = 2.0**-24
"""The unit roundoff of float32, the arithmetic of the deployed network."""

SMALLEST = 2.0**-126
"""The smallest normal number: what an underflow, or the flush of a subnormal number to zero, may cost."""

LARGEST = 2.0**126
"""Below it no partial sum overflows; what may exceed it has no bound."""


class NotCovered(Unsupported):
    """A certificate was asked for in an arithmetic that it does not cover."""


def unit(values: Tensor) -> float:
    """The unit roundoff of the tensors that bounds are computed with."""
    return torch.finfo(values.dtype).eps / 2


def up(values: Tensor, roundings: int = 1) -> Tensor:
    """At least the exact result of this number of roundings, each of which may have made this value too small.

    For values ≥ 0; an exact zero stays zero.
    """
    return values * (1 + 2 * (roundings + 1) * unit(values))


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """A number for each row, shaped to be broadcast with `like`."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def outward(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Both ends moved outwards by a rounding."""
    # Filled, not copied: a copy of a number to a GPU waits until it is idle.
    return torch.nextafter(lower, lower.new_full((), -torch.inf)), torch.nextafter(upper, upper.new_full((), torch.inf))


@dataclass(frozen=True)
class Sums:
    """What a rounding error depends on, of a layer each of whose outputs is a sum of products and an offset."""

    terms: Tensor | float  # n, the products that are not exactly zero, of each output
    fan_out: int  # outputs that an input contributes to
    weight: Tensor  # the largest weight, in absolute value
    offset: Tensor | float = 0.0  # |b|, to be broadcast over the outputs
    extra: int = 0  # further relative errors, such as those of the weights, in units of u
    within: Tensor | float = 0.0  # roundings in each of several partial sums whose sizes add up to Σ|wᵢxᵢ| at most
    stretch: float = 1.0  # how much larger partial sums may be: an average divides at the end


EXACT = Sums(0, 0, torch.zeros(()))
"""The layer rounds nothing."""


@dataclass(frozen=True)
class Rounding:
    """Bounds of the errors of one layer's sums, for each output."""

    deployed: Tensor  # of the network, for any inputs in the box
    relative: Tensor  # κ: of the network, at most κ·|W||x| + constant
    constant: Tensor
    own: Tensor  # of ours, when a plane passes back through the layer
    overflow: Tensor  # (B,): a partial sum may leave the range of float32


def errors(sums: Sums, size: Tensor, radius: Tensor, reach: Tensor, centre: Tensor) -> tuple[Rounding, Tensor]:
    """The errors of a layer, and the radius of its box that makes up for them.

    size: the inputs' largest absolute values. radius, reach, centre: |W|r, |W|·size and Wc + b as we computed them.
    """
    ours = unit(size)
    count = sums.terms + sums.within + 2 + sums.extra
    # Sums of positive numbers are too small by a relative error at most.
    grown = 1 + 2 * count * ours
    radius, reach = radius * grown, up(reach * grown + sums.offset, 2)
    value = torch.minimum(up(centre.abs() + radius + 2 * count * ours * reach, 4), reach)  # of the sum: |P − N|
    products = up(reach - sums.offset).clamp_min(0)
    u = UNIT / (1 - 2 * count * UNIT)
    too_long = (torch.as_tensor(count) * UNIT > 0.25).any()  # where the model ends
    each, partial = 1 + sums.extra + sums.within, 0.5 * (reach + value)  # max(P, N) = (P + N + |P − N|)/2
    flushed = _underflow(sums, size)
    deployed = up(u * (sums.terms * partial + each * products), 8) + flushed
    # Ours in the adjoint: |Wᵀs − computed|·|x| ≤ γ·|s|·|W||x|; and in the float64 sums of the offset.
    own = (2 * (sums.fan_out + 8 + sums.extra) * ours + (reach.shape[1:].numel() + 64) * 2.0**-52) * reach
    # As a multiple of |W||x|: max(P, N) is at most that and |b|, or half of it and half the value, if that is small.
    small = 2 * value < reach
    share = torch.where(small, 0.5, 1.0).to(size.dtype)
    relative = u * (sums.terms * share + each) * (1 + 2 * (sums.fan_out + 8) * ours)
    constant = u * sums.terms * (share * sums.offset + torch.where(small, 0.5 * value, 0))
    # Not the sums alone: exp(h) may exceed the range of float32 where its input is zero, and ∞·0 is NaN.
    fits = (reach * sums.stretch < LARGEST).flatten(1).all(1) & (sums.weight < LARGEST)  # false for NaN
    fits &= (size < LARGEST).flatten(1).all(1)
    rounding = Rounding(
        deployed=deployed,
        relative=up(relative, 8),
        constant=up(constant, 8) + flushed,
        own=up(own, 8),
        overflow=~fits | too_long,
    )
    # The centre has an error of its own, of the same kind.
    return rounding, up(radius + deployed * (1 + ours / UNIT), 4)


def relative_error(sums: Sums, size: Tensor) -> Tensor:
    """What both roundings, the network's and ours, add to a sum at most, as a share of Σ|wᵢxᵢ| + |b|; (B, 1, …)."""
    ours = unit(size)
    total = sums.terms + sums.within
    count = (total.to(size) if isinstance(total, Tensor) else size.new_full((), total)) + 4 + 2 * sums.extra
    count = count.flatten(1).amax(1) if count.ndim > 1 else count.expand(len(size))
    share = count * (UNIT / (1 - 2 * count * UNIT) + 2 * ours)
    share = torch.where(count * UNIT > 0.25, torch.inf, share)  # where the model ends
    return up(share, 16).reshape(-1, *[1] * (size.ndim - 1))


def inflate(sums: Sums, size: Tensor, share: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The radius of a layer's box from |W|(r + share·size) as we computed it, and whether a sum may overflow."""
    share = share.reshape(-1, *[1] * (radius.ndim - 1))
    limit = radius.flatten(1).amax(1) if radius.numel() else radius.new_zeros(len(radius))
    largest = torch.as_tensor(sums.offset).amax()
    # radius ≥ share·|W|·size, and so it tells how large the sums may be.
    fits = (limit / share.flatten() + largest) * sums.stretch < LARGEST  # false for NaN
    fits &= (sums.weight < LARGEST) & (size.flatten(1).amax(1) < LARGEST if size.numel() else True)
    # Both factors of the computed sum are positive: it is too small by a relative error of less than the share.
    grown = torch.addcmul(radius, radius, share) if radius.ndim else radius
    return up(grown + share * sums.offset + _underflow(sums, size), 8), ~fits


def _underflow(sums: Sums, size: Tensor) -> Tensor:
    """What underflows may add: at most the smallest normal number a product and a sum, or a factor that is flushed."""
    each = 4 * SMALLEST * (1 + sums.weight + size.flatten(1).amax(1))
    offset = torch.as_tensor(sums.offset)
    # Even if nothing is added to the bias. A number stays where it is: a copy to a GPU would wait until it is idle.
    bias = torch.where((offset > 0) & (offset < SMALLEST), 2 * SMALLEST, 0).to(size.dtype)
    return sums.terms * each.reshape(-1, *[1] * (size.ndim - 1)) + bias


def positive_sum(values: Tensor) -> Tensor:
    """At least the sum of each row's values, which are not negative, in float64; shape (B,)."""
    rows = values.flatten(1)
    return rows.sum(1, dtype=torch.float64) * (1 + (rows.shape[1] + 64) * 2.0**-52)
