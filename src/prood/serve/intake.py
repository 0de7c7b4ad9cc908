"""From what was sent to what the model takes: stacks of pixels, radii, factors, steps."""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.requests import Request
from torch import Tensor

from prood.detector.inputs import Shape
from prood.serve.answer import Refused, bad
from prood.serve.bodies import INLINE as SHORT
from prood.serve.bodies import Allowed, Held, asked
from prood.serve.options import Options
from prood.serve.pictures import BYTES_A_PIXEL, decoded, header_size, opened

INLINE = 256 * 256
"""More pixels than these are decoded in a thread."""
TOGETHER = 4
"""How many times the pixels of the largest picture all pictures of a request may have together."""
Word = TypeVar("Word", bound=str)
_DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?", re.ASCII | re.IGNORECASE)


class Room:
    """Bytes that are there for what is decoded now. Who finds too few waits, and others behind him."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._first, self._freed = asyncio.Lock(), asyncio.Event()

    @asynccontextmanager
    async def taken(self, wanted: int) -> AsyncIterator[None]:
        mine = min(wanted, self._most)
        async with self._first:
            while self._left < mine:
                self._freed.clear()
                await self._freed.wait()
            self._left -= mine
        try:
            yield
        finally:
            self._left += mine
            self._freed.set()


class Intake:
    """Takes requests in for images of a shape; bodies and decoded pictures have the room that all models share."""

    def __init__(self, shape: Shape, options: Options, held: Held, room: Room) -> None:
        self.shape, self.options = shape, options
        self.held, self._room = held, room

    async def images(self, request: Request, *names: str, one: bool = False) -> tuple[Tensor, Mapping[str, Any]]:
        """All images of a POST, float32 (N, C, H, W) in [0, 1], and the options of these names that it gives."""
        allowed = Allowed.of(names, self.shape, self.options)
        with self.held.body() as grown:
            sent = await asked(request, self.options, allowed, grown)
            if one and len(sent.images) != 1:
                raise bad(f"{len(sent.images)} images were sent: send one")
            pixels, found = TOGETHER * self.options.pixels, []
            for place, image in enumerate(sent.images):
                where = f"image {place}"
                if isinstance(image, list):
                    found.append(from_lists(image, self.shape, where))
                    continue
                row, size = await self._picture(image, where)
                pixels -= size
                if pixels < 0:
                    most = TOGETHER * self.options.pixels
                    raise Refused(413, f"the pictures have more than {most} pixels together: make them smaller")
                found.append(row)
            return torch.stack(found), sent.options

    async def _picture(self, file: bytes, where: str) -> tuple[Tensor, int]:
        """One picture and how many pixels it has. It is opened, decoded and dropped before the next one."""

        def whole() -> tuple[Tensor, int]:
            picture = opened(file, self.options.pixels, where)
            return decoded(picture, self.shape, where), picture.width * picture.height

        size = header_size(file)
        pixels = self.options.pixels if size is None else size[0] * size[1]
        if len(file) <= SHORT and pixels <= INLINE:
            return whole()

        async def aside() -> tuple[Tensor, int]:
            async with self._room.taken(BYTES_A_PIXEL * min(pixels, self.options.pixels)):
                return await asyncio.to_thread(whole)

        # A thread cannot be stopped: its room stays taken until it ends, also where nobody waits for it any more.
        return await asyncio.shield(asyncio.ensure_future(aside()))


def from_lists(values: list[Any], shape: Shape, where: str) -> Tensor:
    """Nested lists (C, H, W) of numbers in [0, 1]."""
    array = numbers_in(values, shape)
    if array is None:
        raise bad(f"{where} must be a list of numbers of shape {list(shape)}")
    return in_range(torch.from_numpy(array).float(), where)


def numbers_in(
    values: Any, shape: tuple[int, ...], types: tuple[type, ...] = (int, float)
) -> NDArray[np.float64] | None:
    """Nested lists of this shape as an array; None where they are none, or hold anything but such numbers.

    NumPy is given plain numbers only: one long text among them would make every entry as wide.
    """
    level = [values]
    for size in shape:
        if not all(type(one) is list and len(one) == size for one in level):
            return None
        level = list(chain.from_iterable(level))
    if not set(map(type, level)) <= set(types):
        return None
    try:
        return np.array(level, dtype=np.float64).reshape(shape)
    except OverflowError:
        return None


def in_range(pixels: Tensor, where: str) -> Tensor:
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):  # written so that NaN fails it
        raise bad(f"{where} has pixels outside [0, 1]: divide bytes by 255, and leave the normalisation to the model")
    return pixels


def radii(given: Any, default: float, options: Options) -> list[float]:
    return [default] if given is None else numbers(given, "eps", options.radii, 1.0)


def radius(given: Any, default: float, options: Options) -> float:
    found = radii(given, default, options)
    if len(found) != 1:
        raise bad(f"this address takes one radius, not {len(found)}: give one eps")
    return found[0]


def one_of(given: Any, name: str, words: tuple[Word, ...]) -> Word:
    """The first of the words unless told otherwise."""
    for word in words:
        if given == word:
            return word
    if given is None:
        return words[0]
    raise bad(f"{name} is one of {', '.join(words)}")


def file_name(given: Any) -> str:
    """What a picture is called where it lies; a certificate names it so."""
    name = "image.png" if given is None else given
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable() or "/" in name:
        raise bad("name is the name of a file, without a folder, of at most 200 letters")
    return name


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
        if isinstance(word, str):
            numerator, slash, denominator = word.partition("/")
            value = _decimal(numerator) / (_decimal(denominator) if slash else 1)
        elif isinstance(word, bool) or not isinstance(word, int | float):
            raise TypeError
        else:
            value = float(word)
        if not math.isfinite(value):
            raise ValueError
    except (TypeError, ValueError, ArithmeticError):
        shown = repr(word) if isinstance(word, str) and len(word) <= 20 else "what was sent"
        raise bad(f"{name} must be a number, not {shown}: write 0.01 or 8/255") from None
    if highest is not None and not 0 <= value <= highest:
        raise bad(f"{name} must lie between 0 and {highest:,.0f}, and {value:g} does not")
    return value


def _decimal(text: str) -> float:
    """Plain ASCII: Python also reads spaces, underscores, `inf` and the digits of other scripts."""
    if len(text) > 40 or not _DECIMAL.fullmatch(text):
        raise ValueError
    return float(text)
