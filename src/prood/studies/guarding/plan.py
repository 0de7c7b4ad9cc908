"""What `prood guard` will do, as a recipe: radius, size, schedule and how much is evaluated, planned for the time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from prood.attacks import preset
from prood.errors import BadValue
from prood.models import ProoD, open_classifier
from prood.models.discriminators import discriminator, fitted
from prood.models.sizes import words_of
from prood.studies.guarding import speed
from prood.studies.guarding.asked import Asked, Found, options_of
from prood.studies.guarding.parts import HELD_BACK, MOST, TEST, sizes, sizes_outside
from prood.training import Recipe
from prood.training.recipe import GuardTable, parse

SIZES = ("photo-XS", "photo-S", "photo-M")
"""Of these the largest that can be trained for ENOUGH steps in the time. On traffic signs against photographs, photo-S
proved no more than photo-XS in twice the time."""
ENOUGH = 4000
MOST_STEPS = 20_000
MOST_EPOCHS = 300
SIDE = 56
"""What g's images are averaged down to, about."""
G_SHARE, F_SHARE, ATTACK_SHARE, REST_SHARE = 0.55, 0.2, 0.08, 0.2
"""Of the time: for training g, for training a classifier where none is given, for the attack, for everything else."""
START = 5.0
"""Seconds that loading and writing take, about."""
OUTSIDE = "folder of outliers"


@dataclass(frozen=True)
class Estimate:
    """Seconds by what they are spent on, and what the training of g looks like."""

    seconds: dict[str, float]
    size: str
    steps: int
    step: float

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_minutes(seconds)}" for name, seconds in self.seconds.items() if seconds >= 1)
        training = f"g of size '{self.size}', {self.steps:,} steps of {self.step:.3g} s"
        return f"{training}; about {_minutes(self.total)} in all: {parts}"


def plan(asked: Asked, found: Found, device: torch.device) -> tuple[Recipe, Estimate]:
    """The recipe of this guard, with what is not asked for chosen, and how long it will take."""
    gpu, (channels, height, width) = device.type == "cuda", found.image
    factor, front = _averaging(height, width)
    small = channels, height // factor, width // factor
    eps = asked.eps or (0.01 if channels == 3 or min(height, width) > 32 else 0.05)
    batch = 256 if gpu else 64
    table = GuardTable(
        **{name: value for name in ("accept", "provable", "minutes", "seed") if (value := getattr(asked, name)) is not None},
        classifier=asked.classifier,
        classes=asked.classes,
        weights=None if asked.options.weights is None else str(asked.options.weights),
        mean=asked.options.mean or (),
        std=asked.options.std or (),
        image=found.image,
        factor=factor,
    )
    inside = min(table.images, len(found.inside))
    trained_on = inside - sum(sizes(inside, table).values())
    outside = 2000 if found.outside is None else min(table.images, len(found.outside))
    if trained_on < batch:
        batch = max(8, trained_on // 4)
    per_epoch = trained_on // batch
    shape: dict[str, Any] = {"eps": eps, "batch": batch, "gpu": gpu, "classes": max(2, found.count), "front": front}
    budget = 60 * table.minutes
    seconds = {"reading": _reading(found, inside, outside)}
    chosen, step = _size(asked, budget, small, shape, device)
    f_seconds = 0.0
    if asked.classifier is None:
        draft = recipe(asked, table, chosen, 1.0, 1.0, shape)
        f_step = speed.step_seconds(draft, "oe", found.image, shape["classes"], device)
        f_epochs = min(30.0, max(1.0, F_SHARE * budget / f_step / per_epoch))
        seconds["training the classifier"] = f_epochs * per_epoch * f_step
        f_seconds = f_step / batch / 6  # forwards and backwards, of two sets
    else:
        wrapped, _ = open_classifier(asked.classifier, found.image, options=options_of(asked))
        f_seconds, f_epochs = speed.image_seconds(wrapped, found.image, device), 1.0
    g = fitted(discriminator(chosen, image=small), found.image)
    g_seconds = speed.bound_seconds(g, found.image, eps, device)
    table = _measured(table, f_seconds, g_seconds, preset("fast").cost, budget)
    seconds["choosing, calibrating and evaluating"] = _rest(table, inside, outside, f_seconds, g_seconds)
    seconds["attacking"] = table.attacked * _attacked(f_seconds, preset("fast").cost)
    left = budget - START - sum(seconds.values())
    steps = min(MOST_STEPS, MOST_EPOCHS * per_epoch, int(left / step))
    if asked.epochs is not None:
        steps = max(1, round(asked.epochs * per_epoch))
    elif steps < 50:
        need = math.ceil((budget - left + 200 * step) / 60)
        raise BadValue(f"{table.minutes:g} minutes are too few to train with these images: give --minutes {need} or more")
    seconds = {"training g": steps * step} | seconds
    made = recipe(asked, table, chosen, steps / per_epoch, f_epochs, shape)
    return made, Estimate(seconds, chosen, steps, step)


def recipe(asked: Asked, table: GuardTable, size: str, epochs: float, f_epochs: float, shape: dict[str, Any]) -> Recipe:
    """By our own measurements: linear bounds beside a short attack, ε growing over the first half, no weight decay."""
    gpu, batch, side = shape["gpu"], shape["batch"], min(table.image[1:]) // table.factor
    precision = {"precision": "bfloat16"} if gpu else {}
    schedule = {"epochs": epochs, "decay_from": epochs / 2, "warmup": min(1.0, epochs / 20)}
    f_schedule = {"epochs": f_epochs, "decay_from": f_epochs / 4, "warmup": min(1.0, f_epochs / 10)}
    g: dict[str, Any] = {"batch": batch, "lr": 1e-3, "eps": shape["eps"], "eps_ramp": epochs / 2}
    document: dict[str, Any] = {
        "data": {"inside": asked.inside, "outside": asked.outside or OUTSIDE, "image": list(table.image)},
        "augment": {"pad": max(1, side // 14), "border": "reflect"},
        "networks": {
            "classifier": {"name": "compact" if gpu else "small"} | ({} if gpu else {"width": 48}),
            "discriminator": {"size": size, "guard": 1.0},
        },
        "evaluate": {"outside": [asked.outside or OUTSIDE], "eps": [shape["eps"]], "limit": MOST[TEST]},
        "guard": {name: value for name, value in vars(table).items() if value is not None},
        "train": {
            "oe": f_schedule | {"batch": batch, "lr": 0.003, **precision},
            "discriminator": schedule | g | precision,
        },
    }
    words = "Written by Prood for 'prood guard --recipe': change what you like. Signs and text are no mirror images of "
    words += "themselves: flip is off; turn it on for photographs of things that are."
    return parse(document, "guard", words)


def _averaging(height: int, width: int) -> tuple[int, str]:
    """How g averages down: by a factor that divides the sides, and is trained small; else by a word of its size."""
    if max(height, width) <= 64:
        return 1, ""
    common = math.gcd(height, width)
    factors = [one for one in range(1, common + 1) if common % one == 0 and 24 <= min(height, width) // one <= 72]
    if factors:
        return min(factors, key=lambda one: abs(min(height, width) / one - SIDE)), ""
    return 1, f"p{max(2, round(min(height, width) / SIDE))} "


def _size(asked: Asked, budget: float, small: Sequence[int], shape: dict[str, Any], device: torch.device) -> tuple[str, float]:
    """The size that was asked for, or the largest that has steps enough; and the seconds of a step."""
    image = small[0], small[1], small[2]
    if asked.size is not None:
        words_of(asked.size)
    best: tuple[str, float] | None = None
    for name in (asked.size,) if asked.size is not None else (shape["front"] + one for one in SIZES):
        draft = recipe(asked, GuardTable(image=tuple(small)), name, 1.0, 1.0, shape)
        step = speed.step_seconds(draft, "discriminator", image, 2, device)
        if best is not None and G_SHARE * budget / step < ENOUGH:
            break
        best = name, step
    assert best is not None
    return best


def _reading(found: Found, inside: int, outside: int) -> float:
    seconds = inside * speed.reading_seconds(found.inside)
    return seconds + (outside * speed.reading_seconds(found.outside) if found.outside is not None else 0)


def _rest(table: GuardTable, inside: int, outside: int, f: float, g: float) -> float:
    """Seconds of all passes through f, and of all bounds."""
    of, out = sizes(inside, table), sizes_outside(outside)
    held, test = of[HELD_BACK], of[TEST]
    seen = 2 * (held + out[HELD_BACK]) + of["calibration"] + 4 * test + 2 * out[TEST]
    return (seen + test) * f + 2 * (out[HELD_BACK] + out[TEST]) * g


def _attacked(f: float, cost: int) -> float:
    """Seconds of the attack on an image; a pass and its gradient are three times a pass."""
    return 2 * cost * f


def _measured(table: GuardTable, f: float, g: float, cost: int, budget: float) -> GuardTable:
    """With as many images evaluated and attacked as the time allows."""
    most = int(min(MOST[TEST], REST_SHARE * budget / (12 * f + 4 * g)))
    attacked = int(min(50, ATTACK_SHARE * budget / _attacked(f, cost)))
    return replace(table, most=max(60, most), attacked=attacked if attacked >= 5 else 0)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


__all__ = ["Estimate", "ProoD", "plan", "recipe"]
