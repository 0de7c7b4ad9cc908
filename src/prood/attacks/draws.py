"""Random numbers without state: each is a function of integers such as (seed, image, restart, step).

So a search repeats exactly, and what is drawn for an image does not depend on the batch it came in, on the images that
have left that batch, on the process that works on it, or on the device.
"""

import hashlib

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # the constants of splitmix64 (Steele, Lea and Flood 2014), as signed integers
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def stream(*names: int | str) -> int:
    """A 64-bit key for the stream with this name; names that differ give keys that have nothing in common."""
    return int.from_bytes(hashlib.sha256(repr(names).encode()).digest()[:8], "little", signed=True)


def keys(base: int | Tensor, part: Tensor) -> Tensor:
    """Keys of sub-streams: one for each element of `part` (int64), which is broadcast with `base`."""
    z = base + _GOLDEN * (part + 1)
    # Shifts of signed integers keep the sign, so it is masked away; products wrap around, as they should.
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _FIRST
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _SECOND
    return z ^ ((z >> 31) & (2**33 - 1))


def uniform(key: Tensor, place: Tensor) -> Tensor:
    """Numbers in [0, 1) with 24 random bits, one for each `place` (int64) of the stream `key`, broadcast."""
    return ((keys(key, place) >> 40) & 0xFFFFFF).float() * 2.0**-24


def uniform_like(key: Tensor, like: Tensor) -> Tensor:
    """Uniform numbers of the shape of `like` (R, C, H, W), from one key a row."""
    places = torch.arange(like[0].numel(), device=like.device)
    return uniform(key[:, None], places).view(like.shape).to(like.dtype)


def gaussian_like(key: Tensor, like: Tensor) -> Tensor:
    """Standard normal numbers, by the inverse of their distribution function."""
    centred = uniform_like(key, like.double()) + 2.0**-25  # the middle of each cell of width 2⁻²⁴, so never 0 or 1
    normal: Tensor = torch.special.ndtri(centred)
    return normal.to(like.dtype)


def blocks_like(key: Tensor, like: Tensor) -> Tensor:
    """Uniform numbers that are constant on squares, whose side is a random power of two up to the whole image.

    Networks see coarse patterns far better than pixel noise, and a whole image that is brighter or darker by ε is
    one of them.
    """
    channels, height, width = like.shape[1:]
    sizes = max(height, width, 1).bit_length() + 1
    side = 2 ** (uniform(key, torch.tensor(-1, device=like.device)) * sizes).long().view(-1, 1, 1, 1)
    row = torch.arange(height, device=like.device).view(1, 1, -1, 1) // side
    column = torch.arange(width, device=like.device).view(1, 1, 1, -1) // side
    channel = torch.arange(channels, device=like.device).view(1, -1, 1, 1)
    block = (channel * height + row) * width + column
    return uniform(key.view(-1, 1, 1, 1), block).to(like.dtype)
