"""One style for all figures: legible, told apart without colours too, and the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prood.atomic import replacing
from prood.extras import require_packages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C564B")
"""Okabe and Ito's, in an order in which neighbours differ most also for the colour-blind."""
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 5)))
"""For curves that are printed without colours."""
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "path",  # letters as they are here, whatever fonts a reader has
    "svg.hashsalt": "prood",
}


def check_packages() -> None:
    """To be asked before a study begins: its figures are drawn at the end."""
    require_packages("studies", "matplotlib", what="drawing a study's figures")


@contextmanager
def figure(file: Path, width: float = 7.0, height: float = 4.2) -> Iterator[Figure]:
    """An empty figure of this size in inches, in the common style; an SVG file when the block ends.

    It is written without a date, so that the same figure has the same bytes.
    """
    check_packages()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}):
        made = Figure(figsize=(width, height))  # without pyplot: no window system, nothing to close
        yield made
        with replacing(file) as aside:
            made.savefig(aside, format="svg", metadata={"Date": None, "Creator": None})


def curve(axes: Axes, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """The next of several curves, in its own colour and dashes."""
    number = len(axes.lines)
    look = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}
    axes.plot(x, y, label=label, **look)
