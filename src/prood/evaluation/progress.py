"""What an evaluation shows while it runs."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from prood import processes


class Bar:
    """A bar with the time left, on a terminal and in the first process only."""

    def __init__(self, console: Console | None, title: str, images: int) -> None:
        columns = (
            TextColumn(f"{title:<14}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total} images"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.description}", markup=False),
        )
        hidden = console is None or not console.is_terminal or not processes.is_main() or not images
        self.bar = Progress(*columns, console=console, disable=hidden, transient=True)
        self.task = self.bar.add_task("", total=images)
        self.before = 0.0

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def begins(self, text: str) -> None:
        """The next part, and what it is called."""
        self.before = self.bar.tasks[self.task].completed
        self.bar.update(self.task, description=text)

    def reaches(self, images: float) -> None:
        """So many images of this part are done."""
        self.bar.update(self.task, completed=self.before + images)
