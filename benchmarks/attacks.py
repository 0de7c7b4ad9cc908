"""What certified stopping saves, how fast each attack is, and that its memory does not grow.

    python benchmarks/attacks.py --discriminator RUN [--attacks paper] [--limit 100] [--device cuda] [--parts 123]

1. The preset against a trained discriminator, on each test out-distribution of the quickstart: with a search that never
   stops early, one that stops within a tolerance of the certified bound, and one that stops when AAUC can no longer
   change. Passes are counted, not timed. `prood quickstart` trains a discriminator to try it on.
2. Passes per second of each attack, never stopped; on a GPU also without captured graphs and compiled, and the ratios.
3. Memory in use during 500 iterations of APGD with 5 restarts on 224×224 images, early and late.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

import prood
from prood import data
from prood.attacks import APGD, NEVER, PGD, Attack, Compiled, Square, passes, preset
from prood.evaluation import auc
from prood.evaluation.options import goals
from prood.models import InLogit, ProoD, Score, discriminator, score_of, small
from prood.models.classifiers import resnet18
from prood.studies.known import FAR, INSIDE, NEAR


def stopping(run: str, eps: float, attacks: str, limit: int, device: str) -> None:
    score = InLogit(prood.load(run).to(device))
    known = data.load(INSIDE)
    sets = {name: data.load(name, like=known).subset(limit, 0).floats().to(device) for name in FAR + NEAR}
    with torch.no_grad():
        inside = score(known.floats().to(device))
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


def speed(device: str) -> None:
    """On a GPU with the paper's networks for CIFAR, on a CPU with those of the quickstart. Weights do not matter."""
    gpu = device != "cpu"
    shape, count = ((3, 32, 32), 250) if gpu else ((1, 28, 28), 64)
    networks = {
        "discriminator": discriminator("S" if gpu else "digits", image=shape),
        "classifier": resnet18(10) if gpu else small(8),
    }
    networks["joint model"] = ProoD(networks["classifier"], networks["discriminator"], 3.0)
    for name, network in networks.items():
        score = score_of(network.to(device, memory_format=torch.channels_last).eval())  # as the evaluator has it
        compiled = Compiled(score)
        images = torch.rand(count, *shape, device=device)
        print(f"2. {name}: passes (forward or backward, of one image) per second")
        for attack in (PGD(steps=20), APGD(iterations=30), Square(queries=300)):
            rate = _rate(attack, score, images)
            line = f"   {attack.name:<8} {rate:12,.0f}"
            if gpu:
                with patch.object(passes, "WARM_UP", sys.maxsize):  # nothing is ever captured
                    line += f"   without graphs {(eager := _rate(attack, score, images)):12,.0f}   {rate / eager:.1f}×"
                line += f"   compiled {(fast := _rate(attack, compiled, images)):12,.0f}   {fast / rate:.1f}×"
            print(line, flush=True)


def _rate(attack: Attack, score: Score, images: Tensor) -> float:
    attack(score, images, 0.01, goal=NEVER)  # warm up
    began = time.perf_counter()
    outcome = attack(score, images, 0.01, goal=NEVER)
    outcome.scores.sum().item()  # a GPU's work is done when a number is there
    return (outcome.forward + outcome.backward) / (time.perf_counter() - began)


def memory(device: str, iterations: int = 500) -> None:
    """Live bytes of the search: tensors that exist on the CPU, or what CUDA has allocated."""
    size = "SR" if device != "cpu" else "digits"  # the paper's network for this size would take an hour on a CPU
    score = InLogit(discriminator(size, image=(3, 224, 224)).to(device).eval())
    seen: list[int] = []

    class Watched(InLogit):
        def quick(self, images: Tensor) -> Tensor:
            if len(seen) in (20, iterations - 1):
                gc.collect()
            seen.append(_bytes(device))
            return super().quick(images)

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
    parser.add_argument("--parts", default="123", help="which of the three")
    options = parser.parse_args()
    if "1" in options.parts:
        stopping(options.discriminator, options.eps, options.attacks, options.limit, options.device)
    if "2" in options.parts:
        speed(options.device)
    if "3" in options.parts:
        memory(options.device)


if __name__ == "__main__":
    main()
