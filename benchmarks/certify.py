"""Certificates of a CIFAR discriminator: how tight, how fast, and what soundness costs.

    python benchmarks/certify.py [--device cuda] [--images 16] [--seconds 3] [--eps 0.01] [--model FILE] [--set FILE]

Each method bounds the same images. Its gap is the distance to the best value that an attack finds (the preset `fast`):
the truth lies in between. Sound interval bounds are timed against plain ones in turn, so that a busy machine slows
both alike. Without a model the weights are random, and without a sheet of 32×32 images those are noise.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from prood.attacks import NEVER, preset
from prood.bounds import Budget, Method
from prood.bounds import upper_bound as bound_of
from prood.bounds.certificate import Arithmetic
from prood.models import Discriminator, discriminator
from prood.models.score import InLogit

SHARED = Path(__file__).resolve().parents[2] / "shared"
MODEL = SHARED / "models" / "discriminator-S-prototype.safetensors"
SHEET = SHARED / "data" / "svhn" / "test-00.webp"
NAMES = {"body.1": "conv1", "body.3": "conv2", "body.5": "conv3", "body.9": "hidden", "tail.1": "last"}

METHODS: dict[str, tuple[Method, Arithmetic]] = {
    "IBP, plain": ("ibp", "plain"),
    "IBP, sound": ("ibp", "sound"),
    "CROWN-IBP, plain": ("crown-ibp", "plain"),
    "CROWN-IBP, sound": ("crown-ibp", "sound"),
    "α-CROWN, sound": ("alpha-crown", "sound"),
    "CROWN, sound": ("crown", "sound"),
    "branch and bound, sound": ("bab", "sound"),
}


def load(path: Path | None) -> Discriminator:
    g = discriminator("S", mean=(0.4914, 0.4822, 0.4465), std=(0.2471, 0.2435, 0.2616))
    if path is not None:
        weights = load_file(path)
        for name, value in g.state_dict().items():
            layer, _, what = name.rpartition(".")
            if layer in NAMES:
                value.copy_(weights[f"{NAMES[layer]}.{what}"].reshape(value.shape))
    return g.eval()


def images(path: Path | None, count: int) -> Tensor:
    """The first ones of a sheet of 32×32 images, row by row."""
    if path is None:
        return torch.rand(count, 3, 32, 32)
    with Image.open(path) as sheet:
        pixels = np.asarray(sheet.convert("RGB"))
    rows, columns = pixels.shape[0] // 32, pixels.shape[1] // 32
    tiles = pixels[: rows * 32, : columns * 32].reshape(rows, 32, columns, 32, 3).transpose(0, 2, 4, 1, 3)
    return torch.tensor(tiles.reshape(-1, 3, 32, 32)[:count].copy()).float() / 255


def seconds(function: Callable[[], Tensor], device: torch.device) -> tuple[float, Tensor]:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def sound_over_plain(g: Discriminator, x: Tensor, eps: float, repeats: int) -> list[float]:
    """Time of sound interval bounds over that of plain ones."""

    def bound(arithmetic: Arithmetic) -> float:
        with torch.no_grad():
            return seconds(lambda: bound_of(g, x, eps, method="ibp", arithmetic=arithmetic), x.device)[0]

    bound("plain"), bound("sound")
    return [bound("sound") / bound("plain") for _ in range(repeats)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--batch", type=int, default=64, help="images for the time of sound against plain intervals")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--eps", type=float, default=0.01)
    parser.add_argument("--seconds", type=float, default=3.0, help="of branch and bound, an image")
    parser.add_argument("--model", type=Path, default=MODEL if MODEL.exists() else None)
    parser.add_argument("--set", type=Path, default=SHEET if SHEET.exists() else None)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    with torch.no_grad():
        g = load(arguments.model).to(device)
    x = images(arguments.set, max(arguments.images, arguments.batch)).to(device)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}, {arguments.images} images, eps {arguments.eps}")
    ratios = sound_over_plain(g, x[: arguments.batch], arguments.eps, arguments.repeats)
    print(f"sound/plain IBP {statistics.median(ratios):.2f}× ({min(ratios):.2f} to {max(ratios):.2f})")

    x = x[: arguments.images]
    spent, attacked = seconds(lambda: preset("fast")(InLogit(g), x, arguments.eps, goal=NEVER).scores, device)
    print(f"attack: mean {attacked.mean():.4f}, {len(x) / spent:.2f} images/s; gap = mean of bound − attack")
    budget = Budget(seconds=arguments.seconds)
    print(f"{'method':<26}{'images/s':>10}{'gap':>10}{'of CROWN-IBP':>14}")
    reference = None
    for name, (method, arithmetic) in METHODS.items():

        def bound(method: Method = method, arithmetic: Arithmetic = arithmetic) -> Tensor:
            return bound_of(g, x, arguments.eps, method=method, arithmetic=arithmetic, budget=budget).detach()

        spent, result = seconds(bound, device)
        gap = (result.double() - attacked.double()).mean().item()
        reference = gap if name == "CROWN-IBP, sound" else reference
        share = "" if reference is None else f"{gap / reference:.3f}"
        print(f"{name:<26}{len(x) / spent:>10.3f}{gap:>10.4f}{share:>14}", flush=True)


if __name__ == "__main__":
    main()
