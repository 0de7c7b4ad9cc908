"""Separate training: ProoD-S is the OE classifier, combined with the discriminator without any training."""

from __future__ import annotations

from prood.reproduce import rows
from prood.reproduce.experiment import Content, Experiment
from prood.reproduce.lab import Lab
from prood.reproduce.study import PAPERS


def make(lab: Lab) -> Content:
    joint = [f"{name}{ending}" for ending in ("", PAPERS) for name in ("prood-s", "prood")]
    content = rows.table(lab, ["oe", *(run for run in joint if run in lab.titles)])
    accuracy = {row["run"]: row["accuracy"] for row in content["rows"]}
    separate = [run for run in accuracy if run.startswith("prood-s")]
    # Eq. 3 keeps the order of the classes.
    content["same_accuracy"] = {run: accuracy[run] == accuracy["oe"] for run in separate if "oe" in accuracy}
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
