"""Error bars: mean and sample standard deviation over several seeds of training."""

from __future__ import annotations

from dataclasses import replace

from prood.report.experiments import rows
from prood.report.experiments.experiment import Content, Experiment
from prood.studies.lab import Lab

RUNS = ("oe", "discriminator", "prood")


def make(lab: Lab) -> Content:
    """On CIFAR the seeds that are there, unless training was asked for: each seed is half an hour of a GPU."""
    if lab.study.gpu and lab.training is None:
        lab = replace(lab, training=False)  # with the same lists of models and notes
    if lab.study.gpu:
        nodes = [
            node for name, node in lab.study.rows.items() if any(lab.file(name, seed).is_file() for seed in lab.seeds)
        ]
    else:
        nodes = [lab.study.rows[name] for name in RUNS if name in lab.study.rows]
    content = rows.table(lab, nodes, seeds=lab.seeds)
    if single := [row["title"] for row in content["rows"] if len(row["seeds"]) == 1]:
        lab.notes.append(f"Of one seed so far, and so without a deviation: {'; '.join(single)}.")
    return content


def section(content: Content) -> str:
    table = rows.section(content, others=("Plain", "OE", "ProoD-Disc", "ProoD"), runs=5)
    fewer = "“(2)” is said of a mean of fewer seeds than its row names; what is of a single one has no ±."
    return f"{table}\n\n{fewer}"


EXPERIMENT = Experiment(
    kind="table",
    name="seeds",
    title="Error bars: mean ± standard deviation over seeds",
    paper="App. “Error Bars”",
    make=make,
    section=section,
    view=True,
)
