"""A guard as a study: the classifier, the discriminator, both as one model, and what is measured about them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from prood import data
from prood.errors import BadValue
from prood.models import WrapOptions
from prood.models.wrapped import read_classes
from prood.studies.graph import ATTACK, CERTIFY, Node, Opened, Study
from prood.studies.guarding.parts import CALIBRATION, HELD_BACK, SMALL, TEST, TRAIN, Parts
from prood.studies.runner import Runner
from prood.studies.thresholds import Asked as Point
from prood.training import Recipe
from prood.training.guard_table import GuardTable

CLASSIFIER, DISCRIMINATOR, GUARDED = "classifier", "discriminator", "guarded"


def table_of(recipe: Recipe) -> GuardTable:
    """Its table [guard]."""
    if recipe.guard is None or len(recipe.guard.image) != 3:
        raise BadValue(f"recipe {recipe.name!r} has no table [guard] with an image: 'prood init' writes such a recipe")
    return recipe.guard


def options_of(table: GuardTable) -> WrapOptions:
    """What is said of the classifier."""
    return WrapOptions(
        mean=table.mean or None,
        std=table.std or None,
        output=table.output,
        probabilities=table.probabilities,
        weights=None if table.weights is None else Path(table.weights),
        classes=None if table.classes is None else read_classes(Path(table.classes)),
    )


def study_of(recipe: Recipe, parts: Parts) -> Study:
    """The study that carries out a recipe with a table [guard] on these parts of its images."""
    table = table_of(recipe)
    channels, height, width = table.image
    trained_on = SMALL if table.factor > 1 else TRAIN
    sets = [f"data.{side}={parts.name(side, trained_on)}" for side in ("inside", "outside")]
    classifier = Node(CLASSIFIER, "Classifier alone", "oe", measures=())
    if table.classifier is not None:
        named = data.open_set(parts.name("inside", HELD_BACK)).classes
        opened = Opened(table.classifier, (channels, height, width), options_of(table), named)
        classifier = replace(classifier, method=None, opened=opened)
    joint: dict[str, Any] = {"classifier": CLASSIFIER, "discriminator": DISCRIMINATOR, "headline": True}
    nodes = (
        classifier,
        Node(DISCRIMINATOR, "Discriminator", "discriminator", settings=tuple(sets), measures=()),
        Node(GUARDED, "Guarded", measures=(CERTIFY.name, *([ATTACK.name] if table.attacked else [])), **joint),
    )
    evaluated = replace(recipe.evaluate, outside=(parts.name("outside", TEST),), limit=table.most)
    inside, outside = (parts.name(side, TRAIN) for side in ("inside", "outside"))
    return Study(
        "guard",
        replace(recipe, data=replace(recipe.data, inside=inside, outside=outside, image=()), evaluate=evaluated),
        nodes,
        shift_by=CLASSIFIER,
        attacked=max(1, table.attacked),
        inside=parts.name("inside", TEST),
        calibration=parts.name("inside", CALIBRATION),
        asked=Point(table.accept, table.level, table.provable),
        held_back=(parts.name("inside", HELD_BACK), parts.name("outside", HELD_BACK)),
        whole=GUARDED,
        private=True,
    )


def lab_of(recipe: Recipe, parts: Parts, run: Path, *, device: str | None, console: Console) -> Runner:
    """The study in the folder of the run."""
    study = study_of(recipe, parts)
    return Runner(study, run, seeds=(None,), home=None, own_shifts=True, training=True, device=device, console=console)
