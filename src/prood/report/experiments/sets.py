"""Additional test sets: uniform noise, and the test set of what the models were trained against."""

from __future__ import annotations

from prood.evaluation.words import set_name
from prood.report.experiments import rows
from prood.report.experiments.experiment import Content, Experiment
from prood.report.results import escaped
from prood.studies.lab import Lab

ADDITIONAL = ("places365", "textures", "uniform")
PAPERS = "openimages"


def make(lab: Lab) -> Content:
    names = [set_name(name) for name in lab.recipe.evaluate.outside]
    return rows.table(lab, rows.shown(lab), sets=[name for name in names if name in (*ADDITIONAL, lab.against)])


def section(content: Content) -> str:
    against = content["outside"]
    if against not in content["sets"]:
        return rows.section(content, like=PAPERS)
    told = f"{escaped(against)} is the test set of what our models were trained against; the paper's is OpenImages."
    # Its models against 80M Tiny Images have no such table.
    return f"{rows.section(content, like=PAPERS, columns={against: PAPERS})}\n\n{told}"


EXPERIMENT = Experiment(
    kind="table",
    name="sets",
    title="Additional test sets",
    paper="App. “Additional Datasets”",
    make=make,
    section=section,
    view=True,
)
