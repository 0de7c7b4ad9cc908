"""How fast images are made ready for training.

    python benchmarks/input.py [--batch 512] [--threads 2] [--repeats 15] [--parts 12]

1. Images per second of crop, mirror and AutoAugment on the CPU: ours, on whole batches, against the same policy with
   Pillow, image by image (PIL images in, bytes out). Both follow the same draws, and the results are compared.
2. On a GPU, the share of the input pipeline in a training step of the discriminator by the recipe cifar10-fast: steps
   with the pipeline against the same steps on a batch that is always there, in turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import runpy
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from prood.data import Augment, ImageSet, generator
from prood.models import build
from prood.training import load_recipe
from prood.training.batches import Batches
from prood.training.update import WARM_UP, Update

REFERENCE = Path(__file__).parent.parent / "tests" / "data" / "augment" / "reference.py"
AUGMENT = Augment(pad=4, flip=True, autoaugment=True)
ROUND = 8  # batches in a row: in training, nothing else runs between them on the CPU


def pictures(count: int) -> Tensor:
    """Smooth colours with some texture, in a range of its own for each image, as in photographs of 32×32 pixels."""
    random = generator(0)
    coarse = interpolate(torch.rand(count, 3, 5, 5, generator=random), size=(32, 32), mode="bicubic")
    texture = torch.rand(count, 3, 32, 32, generator=random)
    contrast = 0.3 + 0.7 * torch.rand(count, 1, 1, 1, generator=random)
    return ((coarse * 0.85 + texture * 0.15) * contrast * 255).clamp(0, 255).to(torch.uint8)


def race(batch: int, repeats: int) -> None:
    """In turns, because the machine may be busy with other things; medians for the same reason."""
    augmented = runpy.run_path(str(REFERENCE))["augmented"]
    images = pictures(batch)
    singles = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]

    def ours(step: int) -> Tensor:
        return AUGMENT.apply(images, AUGMENT.draw(batch, generator(0, step)))

    def pillow(step: int) -> list[bytes]:
        draws = AUGMENT.draw(batch, generator(0, step)).tolist()
        return [augmented(image, draw, pad=AUGMENT.pad).tobytes() for image, draw in zip(singles, draws, strict=True)]

    theirs = np.frombuffer(b"".join(pillow(0)), np.uint8).reshape(batch, 32, 32, 3)
    same = torch.equal((ours(0) * 255).round().permute(0, 2, 3, 1).to(torch.uint8), torch.from_numpy(theirs.copy()))
    seconds: dict[str, list[float]] = {"ours": [], "pillow": []}
    for repeat in range(repeats):
        seconds["ours"].append(_time(ours, repeat))
        seconds["pillow"].append(_time(pillow, repeat))
    print(f"1. crop, mirror and AutoAugment, batches of {batch}, {torch.get_num_threads()} threads: images per second")
    for name, times in seconds.items():
        print(f"   {name:<8} {batch / statistics.median(times):10,.0f}   (best {batch / min(times):,.0f})")
    ratio = statistics.median(seconds["pillow"]) / statistics.median(seconds["ours"])
    best = min(seconds["pillow"]) / min(seconds["ours"])
    print(f"   ratio {ratio:.1f} (of the best {best:.1f}), same bytes: {same}")


def share(batch: int, repeats: int) -> None:
    """The whole step as the loop makes it: batches, objective, backward pass, optimiser."""
    torch.backends.cudnn.benchmark = True
    device, half = torch.device("cuda"), batch // 2
    recipe = load_recipe("cifar10-fast")
    options, objective = recipe.options("discriminator"), recipe.method("discriminator")
    images = pictures(20 * half)
    inside, outside = ImageSet("in", images), ImageSet("out", images.flip(0))
    batches = Batches(
        inside,
        outside,
        replace(options, batch=half, seed=0),
        augment=AUGMENT,
        noise=True,
        device=device,
    )
    model = build({"name": "discriminator", **recipe.discriminator}).to(device).train()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    update = Update(model, objective, options.make_optimizer(model), options, device)
    fixed = batches(0)
    kinds: dict[str, Callable[[int], object]] = {
        "step with pipeline": lambda step: update(*batches(step), 1.0, 1e-4),
        "step on one batch": lambda step: update(*fixed, 1.0, 1e-4),
        "pipeline alone": batches,
    }
    for function in kinds.values():
        _time_on_gpu(function, 2 * WARM_UP)  # compiles and captures
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for repeat in range(repeats):
        for name, function in kinds.items():
            seconds[name].append(_time_on_gpu(function, 100, repeat * 100))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print(f"2. discriminator, cifar10-fast, batch {half} + {half}, {torch.cuda.get_device_name()}: milliseconds a step")
    for name, median in medians.items():
        print(f"   {name:<20} {1000 * median:8.3f}   (best {1000 * min(seconds[name]):.3f})")
    added = 1 - medians["step on one batch"] / medians["step with pipeline"]
    print(f"   share of the pipeline {100 * added:.1f}%")


def _time_on_gpu(function: Callable[[int], object], steps: int, first: int = 0) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for step in range(first, first + steps):
        function(step)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps


def _time(function: Callable[[int], object], repeat: int) -> float:
    began = time.perf_counter()
    for step in range(ROUND):
        function(repeat * ROUND + step)
    return (time.perf_counter() - began) / ROUND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512, help="in- and out-distribution together")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--parts", default="12", help="which of them; 2 needs a GPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
    if "1" in options.parts:
        race(options.batch, options.repeats)
    if "2" in options.parts and torch.cuda.is_available():
        share(options.batch, options.repeats)


if __name__ == "__main__":
    main()
