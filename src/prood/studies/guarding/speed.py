"""How long things take on this machine: measured for a moment on made images, before anything is begun."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import nn

from prood.data import Images, ImageSet, uniform_noise
from prood.data.formats.pictures import Unreadable
from prood.data.images import Shape
from prood.evaluation.measuring import images_at_once
from prood.methods import Objective
from prood.models import Discriminator
from prood.training import Recipe
from prood.training.batches import Batches
from prood.training.estimating import Estimate, measure
from prood.training.memory import Meter, held
from prood.training.networks import make_network

ROWS = 16


def timed(work: Callable[[], Any], device: torch.device, times: int = 2) -> float:
    """Seconds that it takes once it has been done before: the best of a few."""
    work()
    return min(_once(work, device) for _ in range(times))


def step(recipe: Recipe, method: str, image: Shape, classes: int, device: torch.device) -> Estimate:
    """Seconds per step of training by this method, and peak memory."""
    options, objective = recipe.options(method), recipe.method(method)
    assert isinstance(objective, Objective)
    noise = uniform_noise(2 * options.batch, image, 0)
    inside = ImageSet("made", noise.images, torch.arange(len(noise)) % classes)
    model = make_network(recipe, method, inside, noise).to(device)
    outside = noise if objective.needs_outside else None
    augment = recipe.augment_for(method)
    batches = Batches(inside, outside, options, augment=augment, noise=objective.needs_noise, device=device)
    return measure(model, objective, batches, options)


@torch.no_grad()
def image_cost(model: nn.Module, image: Shape, device: torch.device) -> tuple[float, int]:
    """Seconds per image of a network's pass over several, and memory for a batch of an evaluation."""
    images = torch.rand((ROWS, *image)).to(device)
    model.to(device).eval()
    meter = Meter(device)
    with meter.measuring() as taken:
        model(images)
    peak, level = taken()
    batch = round((peak - level) * images_at_once(image) / ROWS)
    return timed(lambda: model(images), device) / ROWS, held(device) + batch


def bound_seconds(g: Discriminator, image: Shape, eps: float, device: torch.device) -> float:
    """Seconds for the bound of g around one image."""
    images = torch.rand((ROWS, *image)).to(device)
    g.to(device).eval()
    return timed(lambda: g.upper_bound(images, eps, method="best"), device, 1) / ROWS


def reading_seconds(images: Images) -> float:
    """Seconds to read an image from the disk: the median of a few, as a shared disk stalls now and then."""
    step = max(1, len(images) // ROWS)
    rows, taken = list(range(0, len(images), step))[:ROWS], []
    for some in (rows[start : start + 4] for start in range(0, len(rows), 4)):
        began = time.monotonic()
        try:
            images.take(some)
        except Unreadable:
            images.prepared()  # which names all of them
            raise
        taken.append((time.monotonic() - began) / len(some))
    return median(taken)


def _once(work: Callable[[], Any], device: torch.device) -> float:
    began = time.monotonic()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic() - began
