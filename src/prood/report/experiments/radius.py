"""Radii that the models were not trained for. On CIFAR that is the paper's 8/255, for models trained at 0.01."""

from __future__ import annotations

from prood.report.experiments import rows
from prood.report.experiments.experiment import Content, Experiment
from prood.studies.lab import Lab

FACTORS = (1 / 3, 2 / 3, 4 / 3)
"""Of the radius that is trained for, where the recipe names no other."""


def radii(lab: Lab) -> list[float]:
    """The other radii of the recipe, else smaller and larger ones; three digits, so that 0.3 has 0.1 beside it."""
    others = [eps for eps in lab.recipe.evaluate.eps if eps != lab.eps]
    return others or [float(f"{factor * lab.eps:.3g}") for factor in FACTORS]


def make(lab: Lab) -> Content:
    """Attacked at the largest of them only: that is the question of the paper, and attacks take the time."""
    asked = radii(lab)
    return {"tables": [rows.table(lab, rows.shown(lab), eps=eps, attack=eps == max(asked)) for eps in asked]}


def section(content: Content) -> str:
    return "\n\n".join(map(rows.section, content["tables"]))


EXPERIMENT = Experiment(
    kind="table",
    name="radius",
    title="Generalisation to radii that were not trained for",
    paper="App. “Generalization to Larger Threat Model”",
    make=make,
    section=section,
    view=True,
)
