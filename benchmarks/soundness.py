"""Many evaluations of a CIFAR-size discriminator in certified balls: none may exceed its bound.

    python benchmarks/soundness.py MODEL IMAGES.npz [--device cuda] [--evaluations 1000000] [--eps 0,1e-6,0.01]
        [--threads 8] [--without-onednn]

Corners, random points and sign-gradient steps, under permuted channels (other orders of summation), batch sizes of 1
to 512, one and two threads of torch, channels first and last. Prints the smallest margins; ends with exit code 1 if
one is negative. The same in small is in `tests/models/test_deployed.py`, and against simulated hardware in
`tests/bounds/test_sound.py`.

With `--threads` so many Python threads do this at once, bounds too, in a process whose settings ask for few digits:
what one of them leaves must not reach the others. Without oneDNN, torch would take NNPACK's transforms where it may.
"""

from __future__ import annotations

import argparse
import platform
import runpy
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prood.data import load as load_images
from prood.models import Discriminator, load

TEST = Path(__file__).parent.parent / "tests" / "models" / "test_deployed.py"
SIZES = (512, 512, 64, 512, 200, 512, 33, 512, 7, 512, 512, 1)  # of batches, in turns


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("images")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--evaluations", type=int, default=1_000_000)
    parser.add_argument("--eps", default="0,1e-6,0.01")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--without-onednn", action="store_true")
    options = parser.parse_args()
    g = load(options.model, device=options.device)[0]
    assert isinstance(g, Discriminator)
    images = load_images(f"npz:{options.images}").floats()[:512].to(options.device)
    radii = [float(eps) for eps in options.eps.split(",")]
    eps = torch.tensor([radii[n % len(radii)] for n in range(len(images))], device=images.device)
    torch.manual_seed(0)
    if options.threads > 1:
        torch.set_float32_matmul_precision("medium")
    torch.backends.mkldnn.enabled = not options.without_onednn
    began = time.perf_counter()
    work = _Work(g, images, eps, options.evaluations // options.threads)
    with ThreadPoolExecutor(options.threads) as pool:
        margins = list(pool.map(lambda _: work.margin(), range(options.threads)))
    margin = torch.stack(margins).amin(0)
    print(f"on {options.device} ({platform.machine()}, torch {torch.__version__}), threads: {options.threads}")
    for radius in radii:
        print(f"  ε = {radius:g}: smallest margin {margin[eps == radius].min().item():.3g}")
    wrong, done = int((margin < 0).sum()), work.evaluations * options.threads
    print(f"≥ {done:,} evaluations in {time.perf_counter() - began:.0f} s, {wrong} images above their bound")
    return 1 if wrong else 0


@dataclass(frozen=True)
class _Work:
    g: Discriminator
    images: Tensor
    eps: Tensor
    evaluations: int

    def margin(self) -> Tensor:
        """For each image, its bound minus the largest value that was seen."""
        tools: dict[str, Any] = runpy.run_path(str(TEST))
        g, images, eps, device = deepcopy(self.g), self.images, self.eps, self.images.device
        bound = torch.cat([g.upper_bound(x, e) for x, e in zip(images.split(64), eps.split(64), strict=True)])
        points, variant = tools["points_of"](g, images, eps), (g, torch.arange(3, device=device))
        margin, done, turn = torch.full_like(bound, torch.inf), 0, 0
        while done < self.evaluations:
            if turn % 3 == 2:
                model, order = tools["shuffled"](deepcopy(g).cpu())
                variant = model.to(device), order.to(device)
            model, channels = variant
            size = SIZES[turn % len(SIZES)]
            rows = torch.randperm(len(images), device=device)[: 16 if size == 1 else len(images)]
            batch = next(points)[rows][:, channels]
            layout = torch.channels_last if turn % 5 > 2 else torch.contiguous_format
            if device.type == "cpu":
                torch.set_num_threads(1 + turn // 2 % 2)
            with torch.no_grad():
                values = torch.cat([model.covered(part.contiguous(memory_format=layout)) for part in batch.split(size)])
            margin[rows] = torch.minimum(margin[rows], bound[rows] - values)
            done, turn = done + len(rows), turn + 1
        return margin


if __name__ == "__main__":
    sys.exit(main())
