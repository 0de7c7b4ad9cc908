"""From what was sent to what the model takes: stacks of pixels, radii, factors, steps."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prood.detector.inputs import Shape
from prood.serve.answer import bad
from prood.serve.bodies import Asked
from prood.serve.options import Options
from prood.serve.pictures import decoded, opened

INLINE = 256 * 256
"""More pixels than these are decoded in a thread."""


class Intake:
    """Decodes at most two large requests at a time, so that their memory is bounded."""

    def __init__(self, shape: Shape, options: Options) -> None:
        self.shape, self.options = shape, options
        self._large = asyncio.Semaphore(2)

    async def images(self, asked: Asked, *, one: bool = False) -> Tensor:
        """All images, float32 (N, C, H, W) in [0, 1]."""
        if one and len(asked.images) != 1:
            raise bad(f"{len(asked.images)} images were sent: send one")
        found = [self._prepared(image, f"image {place}") for place, image in enumerate(asked.images)]

        def stack() -> Tensor:  # one after the other, so that one picture at a time is there in full
            return torch.stack([pixels() for _, pixels in found])

        if sum(size for size, _ in found) <= INLINE:
            return stack()
        async with self._large:
            return await asyncio.to_thread(stack)

    def _prepared(self, image: bytes | list[Any], where: str) -> tuple[int, Callable[[], Tensor]]:
        """How many pixels it has before it is fitted, and what decodes them."""
        if isinstance(image, list):
            return math.prod(self.shape), lambda: from_lists(image, self.shape, where)
        picture = opened(image, self.options.pixels, where)
        return picture.width * picture.height, lambda: decoded(picture, self.shape, where)


def from_lists(values: list[Any], shape: Shape, where: str) -> Tensor:
    """Nested lists (C, H, W) of numbers in [0, 1]."""
    wrong = bad(f"{where} is no list of numbers of the shape {list(shape)}, which the model takes")
    if not _shaped(values, shape):  # before NumPy copies what may be far too long
        raise wrong
    try:
        array = np.asarray(values)
    except ValueError:
        raise wrong from None
    if array.shape != shape or array.dtype.kind not in "fiu":
        raise wrong
    return in_range(torch.from_numpy(array.astype(np.float64)).float(), where)


def _shaped(values: Any, shape: tuple[int, ...]) -> bool:
    if not isinstance(values, list) or len(values) != shape[0]:
        return False
    return len(shape) == 1 or all(_shaped(row, shape[1:]) for row in values)


def in_range(pixels: Tensor, where: str) -> Tensor:
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):  # written so that NaN fails it
        raise bad(f"{where} has pixels outside [0, 1]: divide bytes by 255, and leave the normalisation to the model")
    return pixels


def radii(given: Any, default: float, options: Options) -> list[float]:
    return [default] if given is None else numbers(given, "eps", options.radii, 1.0)


def switch(given: Any, name: str) -> bool:
    """On unless told otherwise."""
    words = {None: True, True: True, False: False, "true": True, "false": False}
    if isinstance(given, bool | str | None) and given in words:
        return words[given]
    raise bad(f"{name} is true or false")


def factors(given: Any, options: Options) -> list[float]:
    return [2.0**power for power in range(11)] if given is None else numbers(given, "factors", options.radii, 1e6)


def steps(given: Any, options: Options) -> int:
    if given is None:
        return min(50, options.attack_steps)
    (found,) = numbers(given, "steps", 1)
    if found != int(found) or not 1 <= found <= options.attack_steps:
        raise bad(f"steps is a whole number from 1 to {options.attack_steps}, not {found:g}")
    return int(found)


def numbers(given: Any, name: str, limit: int, highest: float | None = None) -> list[float]:
    """One or more finite numbers, from 0 to `highest` where that is given: 0.01,8/255 as text, or JSON."""
    words: list[Any] = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
    if not words or len(words) > limit:
        many = f"{limit} numbers at most" if limit > 1 else "one number"
        raise bad(f"{name} is {many}, not {len(words)}")
    return [_number(word, name, highest) for word in words]


def _number(word: Any, name: str, highest: float | None) -> float:
    try:
        if isinstance(word, bool) or not isinstance(word, int | float | str):
            raise TypeError
        numerator, slash, denominator = str(word).partition("/")
        value = float(numerator) / (float(denominator) if slash else 1)
        if not math.isfinite(value):
            raise ValueError
    except (TypeError, ValueError, ArithmeticError):
        shown = repr(word) if isinstance(word, str) and len(word) <= 20 else "what was sent"
        raise bad(f"{shown} is no number for {name}: write 0.01 or 8/255") from None
    if highest is not None and not 0 <= value <= highest:
        raise bad(f"{name} must lie between 0 and {highest:,.0f}, and {value:g} does not")
    return value
