"""Interval bounds of the CIFAR discriminator: ours against a plain implementation of Eq. 6, in one run.

    python benchmarks/bounds.py [--device cuda] [--batch 128] [--repeats 7]

Ours carries centre and radius, two convolutions a layer, and in training one pass serves the in-distribution batch
and the centres of the out-distribution boxes. The plain one carries lower and upper bounds, four convolutions a layer,
beside an ordinary forward pass for the in-distribution batch. Both compute the same numbers, which is checked first.
The two are timed in turn, so that a busy machine slows both alike. The ratio counts, the median over the repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import Box, interval
from prood.methods import Batch, CertifiedDiscriminator, Step
from prood.models import Discriminator, discriminator


def plain_bounds(g: Discriminator, images: Tensor, eps: float) -> Tensor:
    """The upper bound of Eq. 6, layer by layer, as printed in the paper."""
    lower, upper = (images - eps).clamp(0, 1), (images + eps).clamp(0, 1)
    for layer in (*g.body, *g.tail):
        if isinstance(layer, nn.Conv2d):
            plus, minus = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            how = (layer.stride, layer.padding)
            lower, upper = (
                F.conv2d(lower, plus, layer.bias, *how) + F.conv2d(upper, minus, None, *how),
                F.conv2d(upper, plus, layer.bias, *how) + F.conv2d(lower, minus, None, *how),
            )
        elif hasattr(layer, "weight"):
            plus, minus = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            lower, upper = (
                F.linear(lower, plus, layer.bias) + F.linear(upper, minus),
                F.linear(upper, plus, layer.bias) + F.linear(lower, minus),
            )
        else:  # normalisation, ReLU, average pooling, flattening: none of them decreases
            lower, upper = layer(lower), layer(upper)
    return upper.squeeze(1)


def steps(g: Discriminator, inside: Tensor, outside: Tensor, eps: float) -> dict[str, Callable[[], Tensor]]:
    """The four things to time; each returns a number to compare."""
    optimizer = torch.optim.Adam(g.parameters(), lr=0.0)  # a full step whose result does not drift
    objective = CertifiedDiscriminator(eps=eps, bound="ibp")
    end = Step(torch.tensor(1.0, device=inside.device))

    def update(loss: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def our_step() -> Tensor:
        return update(objective(g, Batch(inside), Batch(outside), end)[0])

    def plain_step() -> Tensor:
        return update(F.softplus(-g(inside)).mean() + F.softplus(plain_bounds(g, outside, eps)).mean())

    @torch.no_grad()
    def our_bounds() -> Tensor:
        return interval(g.network, Box.ball(outside, eps)).upper.squeeze(1)

    @torch.no_grad()
    def four_convolutions() -> Tensor:
        return plain_bounds(g, outside, eps)

    return {
        "bounds, ours": our_bounds,
        "bounds, Eq. 6": four_convolutions,
        "step, ours": our_step,
        "step, Eq. 6": plain_step,
    }


def seconds(function: Callable[[], Tensor], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    torch.manual_seed(0)
    g = discriminator("S").to(device)
    inside, outside = (torch.rand(arguments.batch, 3, 32, 32, device=device) for _ in range(2))
    timed = steps(g, inside, outside, eps=0.01)
    torch.testing.assert_close(timed["bounds, ours"](), timed["bounds, Eq. 6"](), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(timed["step, ours"](), timed["step, Eq. 6"](), rtol=1e-4, atol=1e-4)

    times: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(arguments.repeats):
        for name, function in timed.items():
            times[name].append(seconds(function, device))
    middle = {name: statistics.median(values) for name, values in times.items()}
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{where}, torch {torch.__version__}, batch {arguments.batch} (+ {arguments.batch} in a training step)")
    for name, value in middle.items():
        print(f"{name:<14} {arguments.batch / value:9.1f} images/s")
    for what in ("bounds", "step"):
        ratios = [theirs / ours for theirs, ours in zip(times[f"{what}, Eq. 6"], times[f"{what}, ours"], strict=True)]
        print(f"{what:<6} {statistics.median(ratios):.2f}× as fast ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
