"""What `prood guard` will do, as a recipe: radius, size, schedule and how much is evaluated, planned for the time."""

import math
from dataclasses import dataclass, replace

import torch

from prood.attacks import preset
from prood.detector.gates import LEAST as LEAST_FOR_A_GATE
from prood.errors import BadValue
from prood.studies.guarding import speed
from prood.studies.guarding.asked import Asked, Found
from prood.studies.guarding.choosing import Costs, chosen
from prood.studies.guarding.parts import CALIBRATION, HELD_BACK, MADE, TEST, TRAIN, Parts, sizes, sizes_outside
from prood.studies.guarding.writing import recipe
from prood.training import Recipe
from prood.training.estimating import duration, size
from prood.training.guard_table import GuardTable

LEAST = 50
MOST_STEPS, MOST_EPOCHS = 20_000, 300
CLASSIFIER, ATTACK, REST = 0.2, 0.08, 0.25
"""Shares of the time: for training a classifier where none is given, for the attack, for all else but g."""
EVALUATING, ATTACKING = "choosing, calibrating and evaluating", "attacking"
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

    @property
    def after(self) -> float:
        """What follows the training of g."""
        return self.seconds[EVALUATING] + self.seconds[ATTACKING]

    def __str__(self) -> str:
        parts = _told(self.seconds)
        training = f"g of size {self.size!r}, {self.steps:,} steps of {duration(self.step)}"
        memory = f"peak memory about {size(self.bytes)}"
        return f"about {duration(self.total)} in all ({parts}); {training}; {memory}"


def plan(asked: Asked, found: Found, device: torch.device) -> tuple[Recipe, Estimate]:
    """The recipe of this guard, with what is not asked for chosen, and how long it will take."""
    table = _table(asked)
    inside = min(table.images, len(found.inside))
    outside = sum(MADE.values()) if found.outside is None else min(table.images, len(found.outside))
    trained_on = sizes(inside, table)[TRAIN]
    sizes_outside(outside, table)  # or they are refused
    budget = 60 * table.minutes
    name, setting, costs = chosen(asked, found, trained_on, budget, device)
    table = replace(_measured(table, costs, budget), image=setting.image, factor=setting.factor)
    of = sizes(inside, table)
    if asked.provable is None and min(of[HELD_BACK], of[CALIBRATION]) < 2 * LEAST_FOR_A_GATE:
        table = replace(table, provable="0")
    per_epoch, f_epochs = trained_on // setting.batch, 1.0
    seconds = {"reading": inside * costs.read[0] + outside * costs.read[1]}
    if asked.classifier is None:
        f_epochs = min(30.0, max(1.0, CLASSIFIER * budget / costs.f_step / per_epoch))
        seconds["training the classifier"] = f_epochs * per_epoch * costs.f_step
    seconds[EVALUATING] = _rest(table, inside, outside, costs)
    seconds[ATTACKING] = table.attacked * _attack(costs.f)
    left = budget - START - sum(seconds.values())
    steps = _steps(left, costs.step, per_epoch)
    if asked.epochs is not None:
        steps = max(1, round(asked.epochs * per_epoch))
    elif steps < LEAST:
        need = math.ceil((budget - left + 4 * LEAST * costs.step) / 60)
        here = _told(seconds | {"a step of training g": costs.step})
        few = f"{table.minutes:g} minutes are too few to train with these images (here {here})"
        raise BadValue(f"{few}: give --minutes {need} or more")
    seconds = {"training g": steps * costs.step} | seconds
    epochs = steps / per_epoch if asked.epochs is None else asked.epochs
    made = recipe(asked, table, setting, name, epochs, f_epochs)
    return made, Estimate(seconds, name, steps, costs.step, costs.bytes)


def in_what_is_left(made: Recipe, parts: Parts, seconds: float, device: torch.device) -> Recipe:
    """The recipe with as many epochs of g as these seconds have room for, measured again: other work took its time."""
    table, options = made.guard, made.options("discriminator")
    assert table is not None
    channels, height, width = table.image
    per_epoch = parts.counts[f"inside/{TRAIN}"] // options.batch
    costs = speed.step(made, "discriminator", (channels, height // table.factor, width // table.factor), 2, device)
    epochs = max(LEAST, _steps(seconds, costs.seconds_a_step, per_epoch)) / per_epoch
    changed = {"epochs": epochs, "decay_from": epochs / 2, "warmup": min(1.0, epochs / 20), "eps_ramp": epochs / 2}
    return replace(made, train=made.train | {"discriminator": made.train["discriminator"] | changed})


def _told(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {duration(some)}" for name, some in seconds.items() if some >= 0.1)


def _table(asked: Asked) -> GuardTable:
    chosen = {name: getattr(asked, name) for name in ("accept", "provable", "minutes", "seed", "classifier", "classes")}
    chosen |= {"weights": None if asked.options.weights is None else str(asked.options.weights)}
    chosen |= {name: getattr(asked.options, name) for name in ("mean", "std", "output", "probabilities")}
    return GuardTable(**{name: value for name, value in chosen.items() if value is not None})


def _steps(seconds: float, step: float, per_epoch: int) -> int:
    return min(MOST_STEPS, MOST_EPOCHS * per_epoch, int(seconds / step))


def _rest(table: GuardTable, inside: int, outside: int, costs: Costs) -> float:
    """Seconds of all passes through f, and of all bounds."""
    of, out = sizes(inside, table), sizes_outside(outside, table)
    passes = 3 * of[HELD_BACK] + 2 * out[HELD_BACK] + of[CALIBRATION] + 5 * of[TEST] + 2 * out[TEST]
    return passes * costs.f + (2 * out[HELD_BACK] + out[TEST]) * costs.g


def _attack(f: float) -> float:
    """Seconds of the attack on an image; half of its passes have a gradient, which takes two passes more."""
    return 2 * preset("fast").cost * f


def _measured(table: GuardTable, costs: Costs, budget: float) -> GuardTable:
    """With as many images evaluated and attacked as the time allows."""
    most = int(min(table.most, REST * budget / (13 * costs.f + 3 * costs.g)))
    attacked = int(min(50, ATTACK * budget / _attack(costs.f)))
    return replace(table, most=max(100, most), attacked=attacked if attacked >= 5 else 0)
