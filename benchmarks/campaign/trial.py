"""One job: an objective with the mechanisms on trial, and the loop around it."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from images import SHAPE
from settings import Settings
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import Box, concretise, relax
from prood.data import Augment, ImageSet
from prood.methods import Batch, CertifiedDiscriminator, Step
from prood.methods.base import Logs, ramp, train_mode
from prood.models import Discriminator, build, load, save
from prood.training.batches import Batches
from prood.training.options import TrainOptions
from prood.training.run import Run
from prood.training.update import Update

CHECKPOINT = 60.0  # seconds between two
REPORT = 400  # steps between two looks at the loss


@dataclass(frozen=True)
class Trial(CertifiedDiscriminator):
    """The package's linear-bound loss with what `Settings` adds to it."""

    eps_high: float = 0.0
    certified_end: float | None = None
    length: float = 1.0  # epochs of the whole training
    l1: float = 0.0
    tail: float = 0.0
    in_weight: float = 1.0
    in_tail: float = 0.0

    def __call__(
        self, model: Discriminator, batch_in: Batch, batch_out: Batch | None, step: Step
    ) -> tuple[Tensor, Logs]:
        assert batch_out is not None
        assert batch_out.noise is not None
        eps: Tensor = self.eps * ramp(step, self.eps_ramp)
        if self.eps_high:
            # One number of each image's noise, which is uniform in [−1, 1], is its place between the two radii.
            place = (batch_out.noise[:, :1, :1, :1] + 1) / 2
            eps = (self.eps + (self.eps_high - self.eps) * place) * ramp(step, self.eps_ramp)
        a: float | Tensor = self.certified_weight
        if self.certified_end is not None:
            a = a + (self.certified_end - a) * ramp(step, self.length)
        g_in, attacked, upper = self.values(model, batch_in, batch_out, eps)
        losses_in = F.softplus(-g_in.float())
        loss_in = losses_in.mean()
        loss = self.in_weight * loss_in
        if self.in_tail:
            loss = loss + self.in_tail * losses_in.topk(max(1, len(losses_in) // 10)).values.mean()
        loss_out = (1 - a) * F.softplus(attacked).mean() + a * F.softplus(upper).mean()
        loss = loss + loss_out
        if self.tail:
            lowest = g_in.detach().float().topk(max(1, len(g_in) // 20), largest=False).values
            t = lowest.max()
            loss = loss + self.tail * ((1 - a) * F.softplus(attacked - t).mean() + a * F.softplus(upper - t).mean())
        if self.l1:
            loss = loss + self.l1 * sum(weight.abs().sum() for weight in model.body.parameters() if weight.ndim > 1)
        logs = {"loss_in": loss_in, "loss_out": loss_out, "g_in": g_in.mean(), "g_out_bound": upper.mean()}
        return loss, logs | {"spread": torch.cat([g_in, upper]).std()}

    def values(
        self, model: Discriminator, batch_in: Batch, batch_out: Batch, eps: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """g(x), g(z̃) and the linear bound ḡ(z), as the package's loss has them."""
        attacked = self.attack(model, batch_out, eps)
        box = Box.ball(batch_out.images, eps, points=torch.cat([batch_in.images, attacked]))
        hidden, pull_body = relax(model.body, box)
        g_in, g_attacked = model.tail(hidden.points).squeeze(1).tensor_split([len(batch_in.images)])
        slopes = {model.tail[0]: hidden.points[len(batch_in.images) :].detach() > 0}
        output, pull_tail = relax(model.tail, hidden, slopes)
        upper = concretise(box, lambda plane: pull_body(pull_tail(plane)), output.radius)
        return g_in, g_attacked, upper


def rate(settings: Settings, part: float) -> float:
    """The learning rate when this part of the training is done."""
    if part < settings.warmup:
        return settings.lr * part / settings.warmup
    if part <= settings.decay_from:
        return settings.lr
    gone = (part - settings.decay_from) / (1 - settings.decay_from)
    return settings.lr * (1 - gone if settings.decay == "linear" else (1 + math.cos(math.pi * gone)) / 2)


def objective(settings: Settings) -> Trial:
    return Trial(
        eps=settings.eps,
        eps_high=settings.eps_high,
        eps_ramp=settings.eps_ramp * settings.epochs,
        certified_weight=settings.certified_weight,
        certified_end=settings.certified_end,
        length=settings.epochs,
        attack_steps=settings.attack_steps,
        attack_step_size=settings.attack_step_size,
        l1=settings.l1,
        tail=settings.tail,
        in_weight=settings.in_weight,
        in_tail=settings.in_tail,
    )


def network(settings: Settings) -> Discriminator:
    side = settings.crop or SHAPE[1]
    model = build({"name": "discriminator", "size": settings.size, "image": [SHAPE[0], side, side]})
    assert isinstance(model, Discriminator)
    return model


def train(
    settings: Settings,
    inside: ImageSet,
    outside: ImageSet,
    folder: Path,
    device: torch.device,
    *,
    until: float,
    say: Callable[[str], None],
) -> tuple[dict[str, Discriminator], dict[str, Any]] | None:
    """The raw and the averaged network, and facts of the run; None if the time `until` came before the end.

    What was cut off goes on from its checkpoint.
    """
    on_gpu = device.type == "cuda"
    torch.manual_seed(settings.seed)
    model = network(settings).to(device)
    with torch.no_grad():
        for weight in model.body.parameters():
            weight.mul_(settings.init if weight.ndim > 1 else 1)
    if on_gpu:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    options = TrainOptions(
        epochs=settings.epochs,
        batch=settings.batch,
        lr=settings.lr,
        seed=settings.seed,
        precision="bfloat16" if on_gpu else "float32",
        compile=on_gpu,
    )
    optimizer = options.make_optimizer(model)
    averaged = copy.deepcopy(model)
    progress = folder / "progress.json"
    run = Run(folder)
    folder.mkdir(parents=True, exist_ok=True)
    start = run.load_checkpoint(model, optimizer)
    seconds = 0.0
    if start:
        averaged.load_state_dict(load(folder / "averaged.safetensors", device=device)[0].state_dict())
        seconds = json.loads(progress.read_text(encoding="utf-8"))["seconds"]
    trial = objective(settings)
    augment = Augment(
        pad=settings.pad,
        flip=True,
        border="reflect",
        autoaugment=settings.autoaugment,
        cutout=settings.cutout,
        rescaled=settings.rescaled,
        crop=settings.crop,
        resized=settings.resized,
        colour=settings.colour,
    )
    batches = Batches(inside, outside, options, augment=augment, noise=True, device=device)
    update = Update(model, trial, optimizer, options, device)
    train_mode(model)
    last = max(1, round(settings.epochs * batches.steps_per_epoch))
    moving, mean = list(model.parameters()), list(averaged.parameters())
    began = saved = time.monotonic()
    steady: tuple[float, int] | None = None  # when the compiled steps began
    logs: dict[str, float] = {}
    for step in range(start, last):
        update(*batches(step), step / batches.steps_per_epoch, rate(settings, step / last))
        with torch.no_grad():
            decay = min(settings.average, (1 + step) / (10 + step))
            torch._foreach_lerp_(mean, moving, 1 - decay)
        done = step + 1
        now = time.monotonic()
        late = now > until and done < last
        if done % REPORT == 0 or done == last or late:
            logs = update.means()
            now = time.monotonic()
            pace = (now - steady[0]) / (done - steady[1]) * batches.steps_per_epoch if steady else math.nan
            steady = steady or (now, done)
            text = ", ".join(f"{name} {value:.3f}" for name, value in logs.items())
            say(f"epoch {done / batches.steps_per_epoch:.1f}: {text}; {pace:.3f} s an epoch")
            if not math.isfinite(logs["loss"]):
                raise ValueError(f"the loss is no longer a number after step {done}")
        if late or (now - saved > CHECKPOINT and done < last):
            saved = now
            save(averaged, folder / "averaged.safetensors", seed=settings.seed)
            progress.write_text(json.dumps({"seconds": seconds + now - began, "step": done}), encoding="utf-8")
            run.save_checkpoint(model, optimizer, done)
            if late:
                say(f"cut off after step {done} of {last}")
                return None
    if on_gpu:
        torch.cuda.synchronize()
    facts = {
        "seconds": round(seconds + time.monotonic() - began, 1),
        "epochs": settings.epochs,
        "steps": last,
        "final": {name: round(value, 4) for name, value in logs.items()},
    }
    made = {"raw": _plain(model), "averaged": _plain(averaged)}
    for kind, discriminator in made.items():
        save(discriminator, folder / f"{kind}.safetensors", seed=settings.seed, eps=settings.eps)
    run.checkpoint.unlink(missing_ok=True)
    return made, facts


def _plain(model: nn.Module) -> Discriminator:
    """In the memory format that files have."""
    assert isinstance(model, Discriminator)
    return model.to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload, no-any-return]
