"""The training loop, written once for every objective."""

from __future__ import annotations

import math
import time

import torch
from rich.console import Console
from torch import nn

from prood import processes
from prood.errors import ProodError
from prood.training.batch_norm import share_batch_norm, unshare_batch_norm
from prood.training.batches import Batches
from prood.training.objectives import Logs, Objective, Step
from prood.training.objectives.base import train_mode
from prood.training.options import TrainOptions
from prood.training.progress import Display
from prood.training.run import Run

REPORT_STEPS = 200  # at the latest after so many steps, and at the end of every epoch, the run is looked at


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
    optimizer = options.make_optimizer(model)
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    start = run.load_checkpoint(model, optimizer)
    last = max(1, round(options.epochs * batches.steps_per_epoch))
    main = processes.is_main()
    if main:
        run.forget_after(start)
    share_batch_norm(model)
    train_mode(model)
    loss_of = torch.compile(objective) if options.compile else objective

    saved = time.monotonic()
    began = saved - (run.last_metrics() or {}).get("seconds", 0.0)
    complaint: str | None = None
    sums: Logs = {}
    count = 0
    with Display(console, title, run.folder, start=start, last=last, shown=main) as display:
        for step in range(start, last):
            epoch = step / batches.steps_per_epoch
            rate = options.learning_rate(epoch)
            for group in optimizer.param_groups:
                group["lr"] = rate
            batch_in, batch_out = batches(step)
            place = Step(torch.tensor(epoch, device=batches.device))
            with torch.autocast(batches.device.type, torch.bfloat16, enabled=options.precision == "bfloat16"):
                loss, logs = loss_of(model, batch_in, batch_out, place)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            processes.average(parameter.grad for parameter in trained if parameter.grad is not None)
            optimizer.step()

            for name, value in {"loss": loss, **logs}.items():
                sums[name] = value.detach().float() + sums.get(name, 0.0)
            count += 1
            display.advance()
            done = step + 1
            within_epoch = done % batches.steps_per_epoch
            if within_epoch and within_epoch % REPORT_STEPS and done != last:
                continue

            means = _means(sums, count)
            sums, count = {}, 0
            if not math.isfinite(means["loss"]):
                raise ProodError(f"the loss is no longer a number after step {done}: lower lr = {options.lr}")
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
    unshare_batch_norm(model)
    model.eval()
    if not all(parameter.isfinite().all() for parameter in trained):
        raise ProodError(f"the weights are no longer numbers after the last step: lower lr = {options.lr}")


def _means(sums: Logs, count: int) -> dict[str, float]:
    values = torch.stack(list(sums.values())) / count
    processes.average([values])
    return dict(zip(sums, values.tolist(), strict=True))
