"""How fast one GPU trains, and how far that is from what its arithmetic allows.

    python benchmarks/gpu.py [--steps 150] [--take NAME …] [--batch 256] [--no-plain] [--profile] [--out FILE.json]

Five steps on 32×32 images, as the loop makes them, with everything that belongs to them (order, augmentation, loss,
gradients, update): the discriminator with the paper's loss and with ours, and a ResNet18 by the plain loss, outlier
exposure and semi-joint training. Seconds an epoch of 50,000 images, and as many of the out-distribution.

`limit` is the time that the multiplications of a step would take at the rate of a large bfloat16 matrix product on the
same machine; they are counted as they are carried out. `plain` is the same step written the plain way: float32, boxes
as lower and upper ends with four convolutions a layer, eager, images augmented on the host, losses read at every step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from prood.atomic import write_text
from prood.data import ImageSet, generator
from prood.methods import Batch, CertifiedDiscriminator, Objective, SemiJoint, Step
from prood.methods.base import train_mode
from prood.models import Discriminator, ProoD, build
from prood.training import load_recipe
from prood.training.batches import Batches
from prood.training.options import TrainOptions
from prood.training.update import Update

IMAGES = 50_000
STEPS = {  # recipe and method
    "discriminator, paper's loss": ("cifar10-ibp", "discriminator"),
    "discriminator, our loss": ("cifar10-fast", "discriminator"),
    "plain": ("cifar10-fast", "plain"),
    "outlier exposure": ("cifar10-fast", "oe"),
    "semi-joint": ("cifar10-fast", "prood"),
}


class Bench:
    """One kind of step: its model, objective, options and images."""

    def __init__(self, recipe_name: str, method: str, batch: int | None, device: torch.device) -> None:
        recipe = load_recipe(recipe_name)
        self.method, self.device, self.augment = method, device, recipe.augment_for(method)
        self.options: TrainOptions = recipe.options(method)
        if batch:
            self.options = replace(self.options, batch=batch)
        self.objective: Objective = recipe.method(method)
        torch.manual_seed(0)
        discriminator = build({"name": "discriminator", **recipe.discriminator})
        if method == "discriminator":
            self.model: nn.Module = discriminator
        else:
            self.model = build({"classes": 10, **recipe.classifier})
            if method == "prood":
                assert isinstance(discriminator, Discriminator)
                self.model = ProoD(self.model, discriminator.eval().requires_grad_(False), 3.0)
        self.model.to(device)
        train_mode(self.model)
        random = generator(0)
        pixels = torch.randint(0, 256, (2, IMAGES // 5, 3, 32, 32), dtype=torch.uint8, generator=random)
        labels = torch.randint(0, 10, (IMAGES // 5,), generator=random)
        self.inside, self.outside = ImageSet("in", pixels[0], labels), ImageSet("out", pixels[1])

    @property
    def steps_per_epoch(self) -> int:
        return IMAGES // self.options.batch

    def batches(self, device: torch.device, *, compile: bool) -> Batches:
        return Batches(
            self.inside,
            self.outside if self.objective.needs_outside else None,
            replace(self.options, seed=0, compile=compile),
            augment=self.augment,
            noise=self.objective.needs_noise,
            device=device,
        )

    def ours(self) -> Callable[[int], None]:
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        update = Update(self.model, self.objective, self.options.make_optimizer(self.model), self.options, self.device)
        batches = self.batches(self.device, compile=self.options.compile)
        return lambda step: update(*batches(step), 1.0, 1e-4)

    def plain_way(self) -> Callable[[int], None]:
        """Float32, eager, augmentation on the host, everything read back at every step."""
        self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer: torch.optim.Optimizer
        if self.options.optimizer == "adam":
            optimizer = torch.optim.Adam(trained, lr=1e-4, foreach=False)
        else:
            optimizer = torch.optim.SGD(trained, lr=1e-4, momentum=0.9, foreach=False)
        batches = self.batches(torch.device("cpu"), compile=False)

        def sent(batch: Batch | None) -> Batch | None:
            if batch is None:
                return None
            parts = (batch.images, batch.labels, batch.noise)
            return Batch(*[None if part is None else part.to(self.device) for part in parts])

        def train(step: int) -> None:
            batch_in, batch_out = (sent(batch) for batch in batches(step))
            assert batch_in is not None
            loss = self._plain_loss(batch_in, batch_out)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()

        return train

    def _plain_loss(self, batch_in: Batch, batch_out: Batch | None) -> Tensor:
        if isinstance(self.objective, CertifiedDiscriminator):
            assert batch_out is not None
            assert isinstance(self.model, Discriminator)
            return _plain_discriminator(self.model, self.objective, batch_in, batch_out)
        if isinstance(self.objective, SemiJoint):  # g with a graph, as a first version would have it
            assert isinstance(self.model, ProoD)
            self.model.discriminator.requires_grad_(True)
        loss, _ = self.objective(self.model, batch_in, batch_out, Step(torch.ones((), device=self.device)))
        return loss


def _plain_discriminator(
    model: Discriminator, objective: CertifiedDiscriminator, batch_in: Batch, batch_out: Batch
) -> Tensor:
    """The loss with lower and upper ends, positive and negative weights, and each set of images on its own."""
    eps = torch.as_tensor(objective.eps, device=batch_out.images.device)
    lower, upper = (batch_out.images - eps).clamp(0, 1), (batch_out.images + eps).clamp(0, 1)
    loss = F.softplus(-model(batch_in.images)).mean()
    if objective.bound == "ibp":
        return loss + F.softplus(_ends(model, lower, upper)[-1][1].squeeze(1)).mean()
    attacked = objective.attack(model, batch_out, eps)
    a = objective.certified_weight
    bound = _crown(model, _ends(model, lower, upper))
    return loss + (1 - a) * F.softplus(model(attacked)).mean() + a * F.softplus(bound).mean()


def _ends(model: Discriminator, lower: Tensor, upper: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Interval bounds of the input and behind each layer: four products a layer."""
    found = [(lower, upper)]
    for layer in [*model.body, *model.tail]:
        product = _product(layer)
        if product is None:
            lower, upper = layer(lower), layer(upper)
        else:
            up, down = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            shift = layer.bias[:, None, None] if isinstance(layer, nn.Conv2d) else layer.bias
            lower, upper = (
                product(lower, up) + product(upper, down) + shift,
                product(upper, up) + product(lower, down) + shift,
            )
        found.append((lower, upper))
    return found


def _product(layer: nn.Module) -> Callable[[Tensor, Tensor], Tensor] | None:
    if isinstance(layer, nn.Conv2d):
        return lambda x, weight: F.conv2d(x, weight, None, layer.stride, layer.padding)
    return F.linear if hasattr(layer, "weight") else None


def _crown(model: Discriminator, ends: list[tuple[Tensor, Tensor]]) -> Tensor:
    """One plane back from the output through the relaxations of the ReLUs."""
    slope, offset = torch.ones_like(ends[-1][0]), torch.zeros_like(ends[-1][0][:, 0])
    layers = [*model.body, *model.tail]
    for place in reversed(range(len(layers))):
        layer, (lower, upper) = layers[place], ends[place]
        if isinstance(layer, nn.ReLU):
            low, high = lower.clamp(max=0), upper.clamp(min=0)
            chord = high / (high - low).clamp_min(1e-12)
            offset = offset + (slope.clamp(min=0) * -chord * low).flatten(1).sum(1)
            slope = slope.clamp(min=0) * chord + slope.clamp(max=0) * (lower + upper > 0)
        elif isinstance(layer, nn.Conv2d):
            assert layer.bias is not None
            offset = offset + (slope.sum((2, 3)) * layer.bias).sum(1)
            extra = 1 if layer.stride[0] == 2 else 0
            slope = F.conv_transpose2d(slope, layer.weight, None, layer.stride, layer.padding, extra)
        elif hasattr(layer, "weight"):
            offset = offset + (slope * layer.bias).sum(1)
            slope = slope @ layer.weight
        elif isinstance(layer, nn.AvgPool2d):
            slope = F.interpolate(slope, scale_factor=2) / 4
        elif isinstance(layer, nn.Flatten):
            slope = slope.reshape(lower.shape)
        else:  # the normalisation
            offset = offset - (slope * layer.mean / layer.std).flatten(1).sum(1)
            slope = slope / layer.std
    lower, upper = ends[0]
    return (slope.clamp(min=0) * upper + slope.clamp(max=0) * lower).flatten(1).sum(1) + offset


class Count(TorchDispatchMode):
    """Adds up the operations of products. Not FlopCounterMode, whose hooks do not bear gradients inside a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_registry:
            self.total += flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=result)
        return result


def flops(bench: Bench) -> float:
    """Floating-point operations of an epoch: those of a small batch, counted as they are carried out."""
    some = 8
    batches = bench.batches(bench.device, compile=False)
    batch_in, batch_out = batches(0)
    few_in = Batch(batch_in.images[:some], None if batch_in.labels is None else batch_in.labels[:some])
    few_out = None
    if batch_out is not None:
        few_out = Batch(batch_out.images[:some], noise=None if batch_out.noise is None else batch_out.noise[:some])
    with Count() as counter:
        loss, _ = bench.objective(bench.model, few_in, few_out, Step(torch.ones((), device=bench.device)))
        loss.backward()  # type: ignore[no-untyped-call]
    bench.model.zero_grad(set_to_none=True)
    return counter.total / some * IMAGES


def matrix_rate(device: torch.device) -> float:
    """FLOP/s of a large product of random bfloat16 matrices."""
    side, kind = (8192, torch.bfloat16) if device.type == "cuda" else (512, torch.float32)
    a, b = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    seconds = timed(lambda step: a @ b, 10, device, repeats=3)
    return 2 * side**3 / seconds


def timed(function: Callable[[int], object], steps: int, device: torch.device, repeats: int, first: int = 0) -> float:
    """Median seconds a step over `repeats` rounds."""
    seconds = []
    for repeat in range(repeats + 1):  # the first only warms up
        synchronise(device)
        began = time.perf_counter()
        for step in range(first + repeat * steps, first + (repeat + 1) * steps):
            function(step)
        synchronise(device)
        seconds.append((time.perf_counter() - began) / steps)
    return statistics.median(seconds[1:])


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def profile(bench: Bench, steps: int = 5) -> None:
    """Which kernels a step spends its time in."""
    step_of = bench.ours()
    for step in range(20):
        step_of(step)
    synchronise(bench.device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for step in range(20, 20 + steps):
            step_of(step)
        synchronise(bench.device)
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)[:28]
    total = sum(row.self_device_time_total for row in found.key_averages())
    print(f"   {total / steps / 1000:.2f} ms of kernels a step")
    for row in rows:
        print(f"   {row.self_device_time_total / steps:9.0f} µs {row.count / steps:6.1f}×  {row.key[:110]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150, help="of a round")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    # Not called --only: torch's compiler looks for that in `sys.argv`, as the name of a benchmark of its own.
    parser.add_argument("--take", nargs="*", help="names of steps, or their beginnings")
    parser.add_argument("--batch", type=int, help="in-distribution images a step; else the recipe's")
    parser.add_argument("--out", type=Path, help="write the numbers there, as JSON")
    parser.add_argument("--profile", action="store_true", help="show the kernels of each step")
    parser.add_argument("--no-plain", action="store_true", help="leave the plain way out")
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # the plain way is float32
    rate = matrix_rate(device)
    machine = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(f"{machine}, torch {torch.__version__}: {rate / 1e12:.0f} TFLOP/s of a bfloat16 matrix product", flush=True)
    rows: list[dict[str, Any]] = []
    for name, (recipe, method) in STEPS.items():
        if chosen.take and not any(name.startswith(word) for word in chosen.take):
            continue
        bench = Bench(recipe, method, chosen.batch, device)
        limit = flops(bench) / rate
        began = time.perf_counter()
        seconds = timed(bench.ours(), chosen.steps, device, chosen.repeats) * bench.steps_per_epoch
        row = {"step": name, "batch": bench.options.batch, "seconds_per_epoch": seconds, "limit": limit}
        row |= {"fraction": limit / seconds}
        if not chosen.no_plain:
            slow = timed(bench.plain_way(), max(2, chosen.steps // 10), device, 2) * bench.steps_per_epoch
            row |= {"plain": slow, "ratio": slow / seconds}
        rows.append(row)
        print(
            f"{name:<28} {bench.options.batch} + {bench.options.batch}: {seconds:.3f} s an epoch, limit {limit:.3f} "
            f"({100 * row['fraction']:.0f}%), plain {row.get('plain', float('nan')):.2f} "
            f"({row.get('ratio', float('nan')):.1f}×)   [{time.perf_counter() - began:.0f} s with compilation]",
            flush=True,
        )
        if chosen.profile:
            profile(bench)
    if chosen.out:
        command = " ".join(["python", *sys.argv])
        text = json.dumps({"machine": machine, "torch": torch.__version__, "command": command, "rows": rows}, indent=1)
        write_text(chosen.out, text + "\n")


if __name__ == "__main__":
    main()
