"""What certified stopping saves, how fast each attack is, and that its memory does not grow.

    python benchmarks/attacks.py --discriminator RUN [--attacks paper] [--limit 100] [--device cuda]

1. The preset against a trained discriminator, on each test out-distribution of the quickstart: with a search that never
   stops early, one that stops within a tolerance of the certified bound, and one that stops when AAUC can no longer
   change. Passes are counted, not timed. `prood quickstart` trains a discriminator to try it on.
2. Passes per second of each attack, never stopped, on the same network.
3. Memory in use during 500 iterations of APGD with 5 restarts on 224×224 images, early and late.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from pathlib import Path

import torch
from torch import Tensor

import prood
from prood import data
from prood.attacks import APGD, NEVER, PGD, Square, preset
from prood.evaluation import auc
from prood.evaluation.stopping import goals
from prood.models import InLogit, Score, discriminator
from prood.quickstart import FAR, INSIDE, NEAR


def stopping(score: Score, inside: Tensor, sets: dict[str, Tensor], eps: float, attacks: str) -> None:
    print(f"1. preset {attacks}, ε = {eps:g}: forward passes per image, AAUC, and times fewer passes")
    totals = {"never": 0, "bound": 0, "auc": 0}
    for name, images in sets.items():
        with torch.no_grad():
            bound = score.upper_bound(images, eps)
        line, before = [], None
        for stop in ("never", "bound", "auc"):
            outcome = preset(attacks)(score, images, eps, goal=goals(stop, bound, inside))  # type: ignore[arg-type]
            totals[stop] += outcome.forward
            found = auc(inside, outcome.scores)
            before = found if before is None else before
            line.append(f"{stop} {outcome.forward / len(images):8.1f} {found:.4f} ({found - before:+.4f})")
        print(f"   {name:<18} GAUC {auc(inside, bound):.4f}  " + "   ".join(line), flush=True)
    for stop in ("bound", "auc"):
        print(f"   all sets: stopping by {stop:<5} saves {totals['never'] / totals[stop]:.1f}×")


def speed(score: Score, images: Tensor, eps: float) -> None:
    print("2. passes (forward or backward, of one image) per second")
    for attack in (PGD(steps=20), APGD(iterations=30), Square(queries=300)):
        attack(score, images, eps, goal=NEVER)  # warm up
        began = time.perf_counter()
        outcome = attack(score, images, eps, goal=NEVER)
        seconds = time.perf_counter() - began
        print(f"   {attack.name:<8} {(outcome.forward + outcome.backward) / seconds:12,.0f}", flush=True)


def memory(device: str, iterations: int = 500) -> None:
    """Live bytes of the search: tensors that exist on the CPU, or what CUDA has allocated."""
    size = "SR" if device != "cpu" else "digits"  # the paper's network for this size would take an hour on a CPU
    score = InLogit(discriminator(size, image=(3, 224, 224)).to(device).eval())
    seen: list[int] = []

    class Watched(InLogit):
        def __call__(self, images: Tensor) -> Tensor:
            if len(seen) in (20, iterations - 1):
                gc.collect()
            seen.append(_bytes(device))
            return super().__call__(images)

    APGD(iterations=iterations)(Watched(score.model), torch.rand(1, 3, 224, 224, device=device), 0.01, goal=NEVER)
    print(f"3. APGD, {iterations} iterations, 5 restarts at 224×224, size {size}: memory in use, MB")
    print(
        f"   iteration 20: {seen[20] / 1e6:.1f}   iteration {iterations - 1}: {seen[iterations - 1] / 1e6:.1f}",
        end="   ",
    )
    peak = (
        torch.cuda.max_memory_allocated()
        if device != "cpu"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    print(f"peak of the process: {peak / 1e6:.1f}")


def _bytes(device: str) -> int:
    if device != "cpu":
        return torch.cuda.memory_allocated()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--discriminator", default="runs/quickstart/discriminator")
    parser.add_argument("--attacks", default="paper")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--eps", type=float, default=0.3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    score = InLogit(prood.load(options.discriminator).to(options.device))
    known = data.load(INSIDE)
    with torch.no_grad():
        inside = score(known.floats().to(options.device))
    sets = {
        name: data.load(name, like=known).subset(options.limit, 0).floats().to(options.device) for name in FAR + NEAR
    }
    stopping(score, inside, sets, options.eps, options.attacks)
    speed(score, sets[FAR[0]], options.eps)
    memory(options.device)


if __name__ == "__main__":
    main()
