"""Where commands print: a terminal has a width, a file or a pipe has none."""

import os

from rich.console import Console

_WIDE = 100_000
"""Columns of a table that is written into a file: as many as it needs. It is no wider than what stands in it."""


def console() -> Console:
    """Standard output. COLUMNS, where it is set, holds for pipes too."""
    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=_WIDE)
