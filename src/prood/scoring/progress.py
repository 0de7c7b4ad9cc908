"""How far a call is: a line with rate and time left on a console, and the same in a file for who looks from outside."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from prood.atomic import write_text

EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


class Progress:
    """`images` is how many this call has to score, None if nobody knows; then its `shards` tell how long it takes."""

    def __init__(self, console: Console | None, file: Path, images: int | None, shards: int) -> None:
        self._console, self._file = console, file
        self._images, self._shards = images, shards
        self._began = time.monotonic()
        self._told = self._began
        self.images = self.errors = self.shards = 0

    def add(self, images: int, errors: int) -> None:
        self.images += images
        self.errors += errors
        now = time.monotonic()
        if now - self._told >= (0.5 if self._console is not None and self._console.is_terminal else EVERY):
            self._told = now
            self.tell()

    def shard(self) -> None:
        self.shards += 1

    def back(self, images: int, errors: int) -> None:
        """What a worker has counted and not finished."""
        self.images -= images
        self.errors -= errors

    @property
    def rate(self) -> float:
        """Images a second."""
        return self.images / max(time.monotonic() - self._began, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds, at the rate so far."""
        passed = time.monotonic() - self._began
        if self._images is not None:
            return (self._images - self.images) / self.rate if self.images else None
        return passed * (self._shards - self.shards) / self.shards if self.shards else None

    def tell(self, *, last: bool = False) -> None:
        facts = {"images": self.images, "of": self._images, "errors": self.errors}
        facts |= {"shards": self.shards, "of_shards": self._shards, "complete": last}
        left = None if last or self.left is None else round(self.left)
        facts |= {"images_per_second": round(self.rate, 1), "seconds_left": left}  # type: ignore[dict-item]
        with suppress(OSError):  # the scores come first: their own files say if a disk is full
            write_text(self._file, json.dumps(facts | {"at": round(time.time())}))
        if self._console is not None:
            line = f"{self.images:,} images" + (f" of {self._images:,}" if self._images is not None else "")
            line += f", {self.shards} of {self._shards} shards, {self.rate:,.0f} images/s"
            line += f", {self.errors:,} could not be read" if self.errors else ""
            line += f", {clock(left)} left" if left is not None else ""
            self._console.print(line, end="\r" if self._console.is_terminal and not last else "\n", markup=False)


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
