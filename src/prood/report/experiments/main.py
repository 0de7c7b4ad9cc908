"""The main table: every method; AUC as it is, guaranteed, and under attack."""

from __future__ import annotations

from prood.report.experiments import rows
from prood.report.experiments.experiment import Content, Experiment
from prood.studies.lab import Lab


def make(lab: Lab) -> Content:
    return rows.table(lab, rows.shown(lab))


EXPERIMENT = Experiment(
    kind="table",
    name="main",
    title="OOD performance: AUC, guaranteed AUC, adversarial AUC",
    paper="the main table, Section 4.2; trained against 80M Tiny Images, App. “80M Tiny Images”",
    make=make,
    section=rows.section,
    view=True,
)
