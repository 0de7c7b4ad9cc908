"""Error bars: mean and sample standard deviation over several seeds of training."""

from __future__ import annotations

from dataclasses import replace

from prood.reproduce import rows
from prood.reproduce.experiment import Content, Experiment
from prood.reproduce.lab import Lab

RUNS = ("oe", "discriminator", "prood")


def make(lab: Lab) -> Content:
    """On CIFAR the seeds that are there, unless training was asked for: each seed is half an hour of a GPU."""
    if lab.is_study and lab.training is None:
        lab = replace(lab, training=False)  # with the same lists of models and notes
    runs = [run for run in lab.titles if lab.is_study or run in RUNS]
    runs = [run for run in runs if not lab.is_study or any(lab.file(run, seed).is_file() for seed in lab.seeds)]
    content = rows.table(lab, runs, seeds=lab.seeds)
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
