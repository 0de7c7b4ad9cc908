"""Progress where nobody sees a bar: a line now and then, in a file or a pipe."""

import time
from collections.abc import Callable

from rich.console import Console

EVERY = 30.0
"""Seconds between two lines: shorter work prints none."""


class Lines:
    """Prints a line on a console that is not a terminal, at most one in `every` seconds; on a terminal there is a bar.

    Without a console nothing is printed.
    """

    def __init__(self, console: Console | None, title: str, *, every: float = EVERY) -> None:
        self.console = None if console is None or console.is_terminal else console
        self.title, self.every = title, every
        self.began = self.last = time.monotonic()

    def tell(self, done: float, total: float, text: Callable[[], str]) -> None:
        """So much is done since the beginning; `text` is asked for only when a line is due."""
        now = time.monotonic()
        if self.console is None or now - self.last < self.every:
            return
        self.last = now
        passed = now - self.began
        left = f", about {_clock(passed * (total - done) / done)} left" if 0 < done <= total else ""
        line = f"{self.title}: {text()}, {_clock(passed)} passed{left}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
