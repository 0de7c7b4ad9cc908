"""The size of g and what it looks at, chosen by what the time has room for on this machine."""

import math
from dataclasses import dataclass

import torch

from prood.models import open_classifier
from prood.models.discriminators import discriminator
from prood.models.fitting import fitted
from prood.models.sizes import words_of
from prood.studies.guarding import speed
from prood.studies.guarding.asked import Asked, Found, options_of
from prood.studies.guarding.writing import Setting, recipe
from prood.training.estimating import Estimate
from prood.training.guard_table import GuardTable

SIZES = ("photo-XS", "photo-S", "photo-M")
"""Sizes to choose from: the largest with ENOUGH steps in the time. On traffic signs against photographs,
photo-S proved no more than photo-XS in twice the time."""
SIDES = (56, 28)
"""What g's images are averaged down to, about: to the second where the first leaves too FEW steps."""
ENOUGH, FEW = 4000, 1000
SHARE = 0.55
"""Share of the time for training g."""


@dataclass(frozen=True)
class Costs:
    """Seconds on this machine, of a step of g and of f, of an image read, classified, bounded; and the peak memory."""

    step: float
    f_step: float
    read: tuple[float, float]
    f: float
    g: float
    bytes: int


def chosen(
    asked: Asked, found: Found, trained_on: int, budget: float, device: torch.device
) -> tuple[str, Setting, Costs]:
    """The size of g and what it looks at, and what everything costs."""
    name, setting, step = _network(asked, found, trained_on, budget, device)
    f_step, most = 0.0, step.bytes
    if asked.classifier is None:
        draft = recipe(asked, GuardTable(), setting, name, 1, 1)
        training = speed.step(draft, "oe", setting.image, setting.classes, device)
        f_step, most = training.seconds_a_step, max(most, training.bytes)
        f = f_step / setting.batch / 6  # there and back, for two sets
    else:
        classifier, _ = open_classifier(asked.classifier, found.image, options=options_of(asked))
        f, bytes = speed.image_cost(classifier, found.image, device)
        most = max(most, bytes)
    g = fitted(discriminator(name, image=setting.small), found.image)
    bound = speed.bound_seconds(g, found.image, setting.eps, device)
    outside = 0.0 if found.outside is None else speed.reading_seconds(found.outside)
    read = speed.reading_seconds(found.inside), outside
    return name, setting, Costs(step.seconds_a_step, f_step, read, f, bound, most)


def _network(
    asked: Asked, found: Found, trained_on: int, budget: float, device: torch.device
) -> tuple[str, Setting, Estimate]:
    """The first of SIDES that leaves steps enough for the smallest network; and for this side the largest that has."""
    channels, height, width = found.image
    gpu = device.type == "cuda"
    batch = min(256 if gpu else 64, max(8, trained_on // 4))
    eps = asked.eps or (0.01 if channels == 3 or min(height, width) > 32 else 0.05)

    def measured(name: str, setting: Setting) -> Estimate:
        draft = recipe(asked, GuardTable(), setting, name, 1, 1)
        return speed.step(draft, "discriminator", setting.small, 2, device)

    for side in SIDES:
        factor, front = averaging(height, width, side)
        setting = Setting(found.image, factor, eps, batch, max(2, found.count), gpu)
        name, *larger = (front + one for one in SIZES) if asked.size is None else words_of(asked.size) and [asked.size]
        step = measured(name, setting)
        if factor == 1 or SHARE * budget / step.seconds_a_step >= FEW:
            break
    for other in larger:
        more = measured(other, setting)
        if not more.fits or SHARE * budget / more.seconds_a_step < ENOUGH:
            break
        name, step = other, more
    return name, setting, step


def averaging(height: int, width: int, side: int) -> tuple[int, str]:
    """How g averages down: by a factor that divides the sides, and is trained small, or by a word in its size."""
    shorter = min(height, width)
    if shorter <= 64:
        return 1, ""
    common = math.gcd(height, width)
    factors = [one for one in range(1, common + 1) if common % one == 0 and 0.6 <= shorter / one / side <= 1.3]
    if factors:
        return min(factors, key=lambda one: abs(shorter / one - side)), ""
    return 1, f"p{max(2, round(shorter / side))} "
