"""Separate training: ProoD-S is the OE classifier, combined with the discriminator without any training."""

from __future__ import annotations

from prood.report.experiments import rows
from prood.report.experiments.experiment import Content, Experiment
from prood.studies.lab import Lab


def make(lab: Lab) -> Content:
    """Models combined of a classifier, beside those that are trained with the same discriminator."""
    joint = [node for node in lab.study.rows.values() if node.discriminator and node.table == "main"]
    joint.sort(key=lambda node: (node.intervals, node.classifier is None))
    separate = {node.name: node.classifier for node in joint if node.classifier}
    classifiers = [lab.study.node(name) for name in dict.fromkeys(filter(None, separate.values()))]
    content = rows.table(lab, [*classifiers, *joint])
    accuracy = {row["run"]: row["accuracy"] for row in content["rows"]}
    # Eq. 3 keeps the order of the classes.
    pairs = [(run, of) for run, of in separate.items() if run in accuracy and of in accuracy]
    content["same_accuracy"] = {run: accuracy[run] == accuracy[of] for run, of in pairs}
    return content


def section(content: Content) -> str:
    titles = {row["run"]: row["title"] for row in content["rows"]}
    words = {True: "has exactly OE's accuracy, as it must", False: "has **not** OE's accuracy, as it should have"}
    told = "; ".join(f"{titles[run]} {words[same]}" for run, same in content["same_accuracy"].items())
    table = rows.section(content, others=("OE", "ProoD-S", "ProoD"))
    return f"{table}\n\n{told}." if told else table


EXPERIMENT = Experiment(
    kind="table",
    name="separate",
    title="Separate training (ProoD-S) beside semi-joint training (ProoD)",
    paper="App. “Separate Training for ProoD”",
    make=make,
    section=section,
    view=True,
)
