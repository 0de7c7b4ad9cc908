"""The training loop, written once for every objective, and what it shows: a bar, and TensorBoard's event files."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import nn

from prood import processes
from prood.errors import Collapsed, Diverged
from prood.methods import Objective
from prood.methods.base import train_mode
from prood.progress import Lines
from prood.training.batches import Batches
from prood.training.options import TrainOptions
from prood.training.run import Run
from prood.training.update import Update, shared_batch_norm

REPORT_STEPS = 200  # maximum steps between two lines of metrics; every epoch ends with one, too
PATIENCE = 3  # reports in a row of what will not mend itself, before training stops


def fit(
    model: nn.Module,
    objective: Objective,
    batches: Batches,
    options: TrainOptions,
    run: Run,
    *,
    console: Console,
    title: str,
) -> None:
    """Train `model` in place from the run's last checkpoint, or from the start, to the end of the schedule."""
    device = batches.device
    on_gpu = device.type == "cuda"
    if on_gpu:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # what its convolutions are fast in
    optimizer = options.make_optimizer(model)
    start = run.load_checkpoint(model, optimizer)
    last = max(1, round(options.epochs * batches.steps_per_epoch))
    if main := processes.is_main():
        run.forget_after(start)
    train_mode(model)
    update = Update(model, objective, optimizer, options, device)

    saved = time.monotonic()
    began = saved - (run.last_metrics() or {}).get("seconds", 0.0)
    complaint: str | None = None
    hopeless = 0  # reports in a row
    display = Display(console, title, run.folder, start=start, last=last, shown=main)
    with display, _tuned(on_gpu), shared_batch_norm(model):
        for step in range(start, last):
            epoch = step / batches.steps_per_epoch
            rate = options.learning_rate(epoch)
            update(*batches(step), epoch, rate)
            done = step + 1
            display.reach(done)
            within_epoch = done % batches.steps_per_epoch
            if within_epoch and within_epoch % REPORT_STEPS and done != last:
                continue

            means = update.means()
            if not math.isfinite(means["loss"]):
                raise Diverged(f"the loss is no longer a number after step {done}: lower lr = {options.lr}")
            before, complaint = complaint, objective.diagnose(means)
            if complaint and not before:
                display.say(f"[yellow]warning:[/] {complaint}")
            elif before and not complaint:
                display.say(f"step {done}: recovered")
            display.report(done, means)
            if main:
                record = {"step": done, "epoch": done / batches.steps_per_epoch, "lr": rate, **means}
                run.log(record | {"seconds": round(time.monotonic() - began, 3)})
                if time.monotonic() - saved >= options.checkpoint_seconds and done != last:
                    run.save_checkpoint(model, optimizer, done)
                    saved = time.monotonic()
            hopeless = hopeless + 1 if complaint and objective.hopeless(means, epoch) else 0
            if hopeless >= PATIENCE and done != last:
                raise Collapsed(f"training stopped after step {done} of {last}: {complaint}")
    model.eval()
    if not all(parameter.isfinite().all() for parameter in update.trained):
        raise Diverged(f"the weights are no longer numbers after the last step: lower lr = {options.lr}")


@contextmanager
def _tuned(on_gpu: bool) -> Iterator[None]:
    """Let cuDNN try its convolutions and keep the fastest: the shapes of a run never change."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = on_gpu or before
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class Display(Progress):
    """A bar with loss and time left on a terminal, else a line now and then, and the same numbers for TensorBoard.

    Silent if not `shown`.
    """

    def __init__(self, console: Console, title: str, folder: Path, *, start: int, last: int, shown: bool) -> None:
        counted = TextColumn("{task.completed}/{task.total} steps"), TextColumn("loss {task.fields[loss]}")
        times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
        columns = TextColumn("{task.description:<14}"), BarColumn(), *counted, *times
        super().__init__(*columns, console=console, disable=not (shown and console.is_terminal))
        self.shown, self.first, self.end = shown, start, last
        self.lines = Lines(console if shown else None, title)
        self.task = self.add_task(title, total=last, completed=start, loss="–")
        self.writer: Any = None
        if shown:
            with suppress(ImportError):
                from torch.utils.tensorboard import SummaryWriter

                self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)

    def stop(self) -> None:
        super().stop()
        if self.writer is not None:
            self.writer.close()

    def reach(self, step: int) -> None:
        """This many steps are done."""
        self.update(self.task, completed=step)
        steps = step - self.first, self.end - self.first  # of this process: those of before took no time of it
        self.lines.tell(*steps, lambda: f"{step}/{self.end} steps, loss {self.tasks[self.task].fields['loss']}")

    def report(self, step: int, values: dict[str, float]) -> None:
        self.update(self.task, loss=f"{values['loss']:.4f}")
        if self.writer is not None:
            for name, value in values.items():
                self.writer.add_scalar(name, value, step)

    def say(self, text: str) -> None:
        if self.shown:
            self.console.print(text)
