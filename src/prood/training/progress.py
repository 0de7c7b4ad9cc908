"""What a training run shows: a progress bar, and TensorBoard's event files where that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Display:
    """A bar with loss and time left on a terminal, and the same numbers for TensorBoard; silent if not `shown`."""

    def __init__(self, console: Console, title: str, folder: Path, *, start: int, last: int, shown: bool) -> None:
        counted = TextColumn("{task.completed}/{task.total} steps"), TextColumn("loss {task.fields[loss]}")
        times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
        columns = TextColumn("{task.description:<14}"), BarColumn(), *counted, *times
        self.console, self.shown = console, shown
        self.bar = Progress(*columns, console=console, disable=not (shown and console.is_terminal))
        self.task = self.bar.add_task(title, total=last, completed=start, loss="–")
        self.writer = _tensorboard(folder, start) if shown else None

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        if self.writer is not None:
            self.writer.close()

    def advance(self) -> None:
        self.bar.advance(self.task)

    def report(self, step: int, values: dict[str, float]) -> None:
        self.bar.update(self.task, loss=f"{values['loss']:.4f}")
        if self.writer is not None:
            for name, value in values.items():
                self.writer.add_scalar(name, value, step)

    def say(self, text: str) -> None:
        if self.shown:
            self.console.print(text)


def _tensorboard(folder: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)
