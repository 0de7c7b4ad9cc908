"""Many evaluations of a CIFAR-size discriminator in certified balls: none may exceed its bound.

    python benchmarks/soundness.py MODEL IMAGES.npz [--device cuda] [--evaluations 1000000] [--eps 0,1e-6,0.01]

Corners, random points and sign-gradient steps, under permuted channels (other orders of summation), batch sizes of 1
to 512, one and two threads, channels first and last. Prints the smallest margins; ends with exit code 1 if one is
negative. The same in small is in `tests/models/test_deployed.py`, and against simulated hardware in
`tests/bounds/test_sound.py`.
"""

from __future__ import annotations

import argparse
import platform
import runpy
import sys
import time
from pathlib import Path

import torch

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
    options = parser.parse_args()
    tools = runpy.run_path(str(TEST))
    g = load(options.model, device=options.device)[0]
    assert isinstance(g, Discriminator)
    images = load_images(f"npz:{options.images}").floats()[:512].to(options.device)
    radii = [float(eps) for eps in options.eps.split(",")]
    eps = torch.tensor([radii[n % len(radii)] for n in range(len(images))], device=images.device)
    torch.manual_seed(0)
    began = time.perf_counter()
    bound = torch.cat([g.upper_bound(x, e) for x, e in zip(images.split(64), eps.split(64), strict=True)])
    print(
        f"{len(images)} images certified in {time.perf_counter() - began:.1f} s on {options.device} "
        f"({platform.machine()}, torch {torch.__version__})"
    )
    points, variant = tools["points_of"](g, images, eps), (g, torch.arange(3, device=images.device))
    margin, done, turn = torch.full_like(bound, torch.inf), 0, 0
    while done < options.evaluations:
        if turn % 3 == 2:
            model, order = tools["shuffled"](g.cpu())
            g.to(options.device)
            variant = model.to(options.device), order.to(options.device)
        model, channels = variant
        size = SIZES[turn % len(SIZES)]
        rows = torch.randperm(len(images), device=images.device)[: 16 if size == 1 else len(images)]
        batch = next(points)[rows][:, channels]
        layout = torch.channels_last if turn % 5 > 2 else torch.contiguous_format
        if options.device == "cpu":
            torch.set_num_threads(1 + turn // 2 % 2)
        with torch.no_grad():
            values = torch.cat([model.covered(part.contiguous(memory_format=layout)) for part in batch.split(size)])
        margin[rows] = torch.minimum(margin[rows], bound[rows] - values)
        done, turn = done + len(rows), turn + 1
    for radius in radii:
        print(f"  ε = {radius:g}: smallest margin {margin[eps == radius].min().item():.3g}")
    wrong = int((margin < 0).sum())
    print(f"{done:,} evaluations in {time.perf_counter() - began:.0f} s, {wrong} images above their bound")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
