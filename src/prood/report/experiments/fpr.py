"""False positive rates at 95% true positive rate: as they are, guaranteed, and under attack."""

from __future__ import annotations

from prood.report.experiments import rows
from prood.report.experiments.experiment import Content, Experiment
from prood.studies.lab import Lab


def make(lab: Lab) -> Content:
    return rows.table(lab, rows.shown(lab), kind="fpr")


EXPERIMENT = Experiment(
    kind="table",
    name="fpr",
    title="False positive rates at 95% true positive rate (smaller is better)",
    paper="App. “False Positive Rates”",
    make=make,
    section=rows.section,
    view=True,
)
