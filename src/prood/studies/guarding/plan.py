"""What `prood guard` will do, as a recipe: radius, size, schedule and how much is evaluated, planned for the time."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from prood.attacks import preset
from prood.data.images import Shape
from prood.errors import BadValue
from prood.models import open_classifier
from prood.models.discriminators import discriminator
from prood.models.fitting import fitted
from prood.models.sizes import words_of
from prood.studies.guarding import speed
from prood.studies.guarding.asked import Asked, Found, options_of
from prood.studies.guarding.parts import CALIBRATION, HELD_BACK, MADE, TEST, TRAIN, sizes, sizes_outside
from prood.training import Recipe
from prood.training.estimating import duration, size
from prood.training.guard_table import GuardTable
from prood.training.recipe import parse

SIZES = ("photo-XS", "photo-S", "photo-M")
"""Of these the largest that has ENOUGH steps in the time. On traffic signs against photographs, photo-S proved no more
than photo-XS in twice the time."""
ENOUGH, LEAST = 4000, 50
MOST_STEPS, MOST_EPOCHS = 20_000, 300
SIDE = 56
"""What g's images are averaged down to, about."""
TRAINING, CLASSIFIER, ATTACK, REST = 0.55, 0.2, 0.08, 0.2
"""Shares of the time: for training g, for training a classifier where none is given, for the attack, for all else."""
START = 8.0
"""Seconds that loading, planning and writing take, about."""


@dataclass(frozen=True)
class Estimate:
    """Seconds by what they are spent on, and what the training of g looks like."""

    seconds: dict[str, float]
    size: str
    steps: int
    step: float
    bytes: int

    @property
    def total(self) -> float:
        return START + sum(self.seconds.values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in self.seconds.items() if seconds >= 1)
        training = f"g of size {self.size!r}, {self.steps:,} steps of {duration(self.step)}"
        memory = f"peak memory about {size(self.bytes)}"
        return f"about {duration(self.total)} in all ({parts}); {training}; {memory}"


@dataclass(frozen=True)
class Setting:
    """What follows from the images and the machine alone."""

    image: Shape
    factor: int
    front: str  # words of the size that average in front, where the sides have no factor that fits
    eps: float
    batch: int
    classes: int
    gpu: bool

    @property
    def small(self) -> Shape:
        """The images that g is trained on."""
        channels, height, width = self.image
        return channels, height // self.factor, width // self.factor


def plan(asked: Asked, found: Found, device: torch.device) -> tuple[Recipe, Estimate]:
    """The recipe of this guard, with what is not asked for chosen, and how long it will take."""
    table = _table(asked, found)
    inside = min(table.images, len(found.inside))
    outside = sum(MADE.values()) if found.outside is None else min(table.images, len(found.outside))
    trained_on = sizes(inside, table)[TRAIN]
    sizes_outside(outside, table)  # or they are refused
    setting = _setting(asked, found, table.factor, device, trained_on)
    per_epoch, budget = trained_on // setting.batch, 60 * table.minutes
    name, step = _size(asked, table, setting, device)
    seconds = {"reading": inside * speed.reading_seconds(found.inside)}
    if found.outside is not None:
        seconds["reading"] += outside * speed.reading_seconds(found.outside)
    f_epochs, f, most = 1.0, 0.0, step.bytes
    if asked.classifier is None:
        f_step = speed.step(recipe(asked, table, setting, name, 1, 1), "oe", setting.image, setting.classes, device)
        f_epochs = min(30.0, max(1.0, CLASSIFIER * budget / f_step.seconds_a_step / per_epoch))
        seconds["training the classifier"] = f_epochs * per_epoch * f_step.seconds_a_step
        f, most = f_step.seconds_a_step / setting.batch / 6, max(most, f_step.bytes)  # there and back, two sets
    else:
        f = speed.image_seconds(
            open_classifier(asked.classifier, found.image, options=options_of(asked))[0], found.image, device
        )
    g = speed.bound_seconds(
        fitted(discriminator(name, image=setting.small), found.image), found.image, setting.eps, device
    )
    table = _measured(table, f, g, budget)
    seconds["choosing, calibrating and evaluating"] = _rest(table, inside, outside, f, g)
    seconds["attacking"] = table.attacked * _attack(f)
    left = budget - START - sum(seconds.values())
    steps = min(MOST_STEPS, MOST_EPOCHS * per_epoch, int(left / step.seconds_a_step))
    if asked.epochs is not None:
        steps = max(1, round(asked.epochs * per_epoch))
    elif steps < LEAST:
        need = math.ceil((budget - left + 20 * LEAST * step.seconds_a_step) / 60)
        raise BadValue(
            f"{table.minutes:g} minutes are too few to train with these images: give --minutes {need} or more"
        )
    seconds = {"training g": steps * step.seconds_a_step} | seconds
    made = recipe(asked, table, setting, name, steps / per_epoch, f_epochs)
    return made, Estimate(seconds, name, steps, step.seconds_a_step, most)


def recipe(asked: Asked, table: GuardTable, setting: Setting, name: str, epochs: float, f_epochs: float) -> Recipe:
    """By our own measurements: linear bounds beside a short attack, ε growing over the first half, no weight decay."""
    batch, side, outside = setting.batch, min(setting.small[1:]), asked.outside or f"made:{MADE[TRAIN]}"
    precision = {"precision": "bfloat16"} if setting.gpu else {}
    f = {"epochs": f_epochs, "decay_from": f_epochs / 4, "warmup": min(1.0, f_epochs / 10), "lr": 0.003}
    g = {"epochs": epochs, "decay_from": epochs / 2, "warmup": min(1.0, epochs / 20), "lr": 1e-3}
    g |= {"eps": setting.eps, "eps_ramp": epochs / 2}
    document: dict[str, Any] = {
        "data": {
            "inside": asked.inside,
            "outside": outside,
            "image": list(setting.image),
            "damaged": asked.damaged or "refuse",
        },
        "augment": {"pad": max(1, side // 14), "border": "reflect"},
        "networks": {
            "classifier": {"name": "compact"} if setting.gpu else {"name": "small", "width": 48},
            "discriminator": {"size": name, "guard": 1.0},
        },
        "evaluate": {"outside": [outside], "eps": [setting.eps], "limit": table.most},
        "guard": {key: value for key, value in vars(table).items() if value is not None},
        "train": {"oe": {**f, "batch": batch, **precision}, "discriminator": {**g, "batch": batch, **precision}},
    }
    words = "Written by Prood for 'prood guard --recipe'. Nothing is mirrored (flip), as signs and text are no mirror "
    return parse(document, "guard", words + "images of themselves: turn it on for photographs of things that are.")


def _table(asked: Asked, found: Found) -> GuardTable:
    chosen = {name: getattr(asked, name) for name in ("accept", "provable", "minutes", "seed")}
    chosen |= {"classifier": asked.classifier, "classes": asked.classes, "image": found.image}
    chosen |= {"weights": None if asked.options.weights is None else str(asked.options.weights)}
    chosen |= {"mean": asked.options.mean, "std": asked.options.std, "factor": _averaging(*found.image[1:])[0]}
    return GuardTable(**{name: value for name, value in chosen.items() if value is not None})


def _setting(asked: Asked, found: Found, factor: int, device: torch.device, trained_on: int) -> Setting:
    channels, height, width = found.image
    gpu = device.type == "cuda"
    batch = min(256 if gpu else 64, max(8, trained_on // 4))
    eps = asked.eps or (0.01 if channels == 3 or min(height, width) > 32 else 0.05)
    front = _averaging(height, width)[1]
    return Setting(found.image, factor, front, eps, batch, max(2, found.count), gpu)


def _averaging(height: int, width: int) -> tuple[int, str]:
    """How g averages down: by a factor that divides the sides, and is trained small; else by a word of its size."""
    shorter = min(height, width)
    if shorter <= 64:
        return 1, ""
    common = math.gcd(height, width)
    factors = [one for one in range(1, common + 1) if common % one == 0 and 24 <= shorter / one <= 72]
    if factors:
        return min(factors, key=lambda one: abs(shorter / one - SIDE)), ""
    return 1, f"p{max(2, round(shorter / SIDE))} "


def _size(asked: Asked, table: GuardTable, setting: Setting, device: torch.device) -> tuple[str, Any]:
    """The size that was asked for, or the largest that has steps enough; and what a step of it takes."""
    if asked.size is not None:
        words_of(asked.size)
    best = None
    for name in (asked.size,) if asked.size is not None else tuple(setting.front + one for one in SIZES):
        step = speed.step(recipe(asked, table, setting, name, 1, 1), "discriminator", setting.small, 2, device)
        if best is not None and not (step.fits and TRAINING * 60 * table.minutes / step.seconds_a_step >= ENOUGH):
            break
        best = name, step
    assert best is not None
    return best


def _rest(table: GuardTable, inside: int, outside: int, f: float, g: float) -> float:
    """Seconds of all passes through f, and of all bounds."""
    of, out = sizes(inside, table), sizes_outside(outside, table)
    passes = 3 * (of[HELD_BACK] + out[HELD_BACK]) + 2 * of[CALIBRATION] + 6 * of[TEST] + 3 * out[TEST]
    return passes * f + 2 * (out[HELD_BACK] + out[TEST]) * g


def _attack(f: float) -> float:
    """Seconds of the attack on an image; half of its passes have a gradient, which takes two passes more."""
    return 2 * preset("fast").cost * f


def _measured(table: GuardTable, f: float, g: float, budget: float) -> GuardTable:
    """With as many images evaluated and attacked as the time allows."""
    most = int(min(table.most, REST * budget / (17 * f + 4 * g)))
    attacked = int(min(50, ATTACK * budget / _attack(f)))
    return replace(table, most=max(60, most), attacked=attacked if attacked >= 5 else 0)
