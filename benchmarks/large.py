"""Large images: images a second and peak memory of predicting and of each bound, for the sizes for photographs.

    python benchmarks/large.py [--sides 32,64,224] [--sizes photo-S,photo-M] [--bounds predict,ibp,crown-ibp,best]
                               [--norm linf] [--batch 8] [--images 8] [--threads 2] [--device cpu]

An image of 224 pixels is averaged down to 56 (`p4 photo-M`), one of 64 to 32 (`p2`). Each line is a process of its own,
whose peak of resident memory (on a GPU: allocated memory) is what the line states, Python and torch included. A fixed
loop of products of matrices is timed beside each: on a busy machine it takes longer, too.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time

import torch

from prood.bounds import Budget
from prood.models import discriminator
from prood.models.sizes import SIZES

PHOTO = tuple(name for name in SIZES if name.startswith("photo"))
BOUNDS = ("predict", "ibp", "crown-ibp", "best", "alpha-crown", "crown")
INNER = 56  # the side that averages leave, at most


def spelled(size: str, side: int) -> str:
    """The size behind averages that leave 56×56 or less."""
    factor = -(-side // INNER)
    return size if factor == 1 else f"p{factor} {size}"


def loop() -> float:
    """Seconds of a fixed work, the same on every machine and in every version."""
    matrix, began = torch.ones(768, 768), time.perf_counter()
    for _ in range(20):
        matrix = (matrix @ matrix).clamp(max=1)
    return time.perf_counter() - began


def measure(size: str, side: int, bound: str, options: argparse.Namespace) -> dict[str, object]:
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device = torch.device(options.device)
    g = discriminator(spelled(size, side), image=(3, side, side)).eval().to(device)
    with torch.no_grad():
        g.last.log_weight.sub_(2)
    images = torch.rand(options.batch, 3, side, side, device=device)
    loop()
    calibration, seconds, done = loop(), 0.0, 0
    began = time.perf_counter()
    while done < options.images:
        if bound == "predict":
            with torch.no_grad():
                values = g.covered(images)
        else:
            values = g.upper_bound(images, 0.01, method=bound, norm=options.norm, budget=Budget())
        values.sum().item()  # a GPU is waited for
        done, seconds = done + len(images), time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated()
    return {"rate": done / seconds, "memory": peak, "calibration": calibration}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", default="32,64,224")
    parser.add_argument("--sizes", default="photo-XS,photo-S,photo-M,photo-L,photo-XL")
    parser.add_argument("--bounds", default="predict,ibp,best", help=f"of {', '.join(BOUNDS)}")
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*json.loads(options.one), options)))
        return
    print(f"{platform.machine()}, torch {torch.__version__}, {options.threads} threads, batches of {options.batch}")
    print(f"{'size':<14} {'pixels':>7} {'bound':<11} {'images/s':>9} {'peak, MB':>9} {'fixed loop, s':>14}")
    for size in options.sizes.split(","):
        for side in map(int, options.sides.split(",")):
            for bound in options.bounds.split(","):
                job = json.dumps([size, side, bound])
                ended = subprocess.run([sys.executable, *sys.argv, "--one", job], capture_output=True, text=True)
                if ended.returncode:
                    print(f"{spelled(size, side):<14} {side:>7} {bound:<11} {ended.stderr.strip().splitlines()[-1]}")
                    continue
                got = json.loads(ended.stdout)
                figures = f"{got['rate']:>9.2f} {got['memory'] / 1e6:>9.0f} {got['calibration']:>14.3f}"
                print(f"{spelled(size, side):<14} {side:>7} {bound:<11} {figures}", flush=True)


if __name__ == "__main__":
    main()
