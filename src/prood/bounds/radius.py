"""The certified radius of an image, and the bound as a function of the radius."""

import math
from collections.abc import Callable, Generator, Sequence

import torch
from torch import Tensor

from prood.bounds.box import Norm
from prood.errors import BadValue

Bound = Callable[[Tensor, Tensor], Tensor]
"""(images, eps) → bounds, with a radius for each image."""

Search = Generator[tuple[Tensor, Tensor], Tensor, Tensor]
"""Yields the images and radii to be bounded next, is sent their bounds, and returns the radii that it found."""


def certified_radius(
    bound: Bound,
    images: Tensor,
    threshold: float,
    *,
    norm: Norm = "linf",
    largest: float | None = None,
    steps: int | None = None,
) -> Tensor:
    """The certified radius of each image by this bound: `radius_search`, carried out at once."""
    search = radius_search(images, threshold, norm=norm, largest=largest, steps=steps)
    try:
        asked = next(search)
        while True:
            asked = search.send(bound(*asked))
    except StopIteration as end:
        found: Tensor = end.value
        return found


def radius_search(
    images: Tensor,
    threshold: float,
    *,
    norm: Norm = "linf",
    largest: float | None = None,
    steps: int | None = None,
) -> Search:
    """The largest radius found at which each image's bound stays below `threshold`; float64, shape (N,).

    By bisection on [0, largest], all images at once, to within largest/2^steps. Unless said otherwise, `largest` covers
    all of [0, 1]^d in this `norm`, and the steps end within a millionth. What is proven at a radius holds at
    every smaller one, for its ball contains theirs, whether or not the bound itself is monotone. Where the bound
    is not below the threshold at radius 0 there is nothing to certify: NaN.

    A generator: whoever carries it out may do other work between two steps.
    """
    if largest is None:
        pixels = images[0].numel() if len(images) else 1
        largest = {"l2": math.sqrt(pixels), "l1": float(pixels)}.get(norm, 1.0)
    if steps is None:
        steps = 20 + (math.ceil(math.log2(largest)) if 1 < largest < math.inf else 0)
    if steps < 1 or not 0 < largest < math.inf:
        raise BadValue("a radius is searched in at least one step, up to a finite largest radius above 0")
    if math.isnan(threshold):
        raise BadValue("a threshold is a number, not NaN")
    proven = torch.zeros(len(images), dtype=torch.float64, device=images.device)
    if not len(images):
        return proven
    failed = torch.full_like(proven, largest)
    rejected = (yield images, proven) < threshold
    everywhere = rejected & ((yield images, failed) < threshold)
    open_rows = (rejected & ~everywhere).nonzero().squeeze(1)
    for _ in range(steps if len(open_rows) else 0):
        middle = 0.5 * (proven[open_rows] + failed[open_rows])
        holds = (yield images[open_rows], middle) < threshold
        proven[open_rows] = torch.where(holds, middle, proven[open_rows])
        failed[open_rows] = torch.where(holds, failed[open_rows], middle)
    proven[everywhere] = largest
    return torch.where(rejected, proven, torch.nan)


def bound_curve(bound: Bound, images: Tensor, radii: Sequence[float]) -> Tensor:
    """The bound of each image at each radius; shape (N, R).

    What is proven at a radius holds at every smaller one, so each bound is at most those at larger radii.
    """
    if not radii:
        raise BadValue("a curve needs at least one radius")
    asked = torch.tensor(radii, dtype=torch.float64, device=images.device)  # float32 may round a radius down
    return nested(torch.stack([bound(images, radius.expand(len(images))) for radius in asked], 1), radii)


def nested(curve: Tensor, radii: Sequence[float]) -> Tensor:
    """Bounds (N, R) of balls around the same images: what is proven about a ball holds for those inside it."""
    order = sorted(range(len(radii)), key=lambda place: radii[place])
    best = curve[:, order].flip(1).cummin(1).values.flip(1)
    return torch.empty_like(curve).scatter(1, torch.tensor(order, device=curve.device).expand_as(curve), best)
