"""When an experiment is made, when it is not made again, and what its file says."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from prood.errors import Damaged, Diverged, NotFound, ProodError
from prood.report.experiments import Experiment, perform, perform_all
from prood.report.experiments.experiment import FORMAT


class Counted:
    """An experiment that counts how often it is made."""

    def __init__(self, kind="figure", name="counted", **options):
        self.made, self.value = 0, 1
        self.experiment = Experiment(
            kind=kind, name=name, title=name, paper="nowhere", make=self.make, section=str, **options
        )

    def make(self, lab):
        self.made += 1
        lab.run("oe")
        lab.notes.append("Mind the gap.")
        return {"value": self.value}


@pytest.fixture
def lab(trained, lab_in, tmp_path):
    """With the trained models in a folder of its own."""
    shutil.copytree(trained.folder, tmp_path / "runs")
    return lab_in(tmp_path)


@pytest.mark.slow
def test_the_file_says_how_it_came_about(lab):
    file = perform(Counted().experiment, lab)
    assert file == lab.results / "tiny" / "experiments" / "figure-counted.json"
    document = json.loads(file.read_text())
    seconds, hardware = document.pop("seconds"), document.pop("hardware")
    assert seconds >= 0
    assert "torch" in hardware
    assert document == {
        "format": FORMAT,
        "kind": "figure",
        "name": "counted",
        "recipe": "tiny",
        "seeds": [0, 1],
        "attacks": "fast",
        "attacked": 3,
        "command": "prood reproduce",
        "models": {"oe-0": lab.weights("oe")},
        "notes": ["Mind the gap."],
        "content": {"value": 1},
    }


def test_what_is_there_is_made_again_only_for_a_reason(lab):
    counted = Counted()
    perform(counted.experiment, lab)
    before = counted.experiment.file(lab).read_bytes()
    perform(counted.experiment, lab)
    assert counted.made == 1
    assert counted.experiment.file(lab).read_bytes() == before
    perform(counted.experiment, lab, again=True)
    assert counted.made == 2
    perform(counted.experiment, replace(lab, study=replace(lab.study, attacked=4)))
    assert counted.made == 3
    perform(counted.experiment, replace(lab, seeds=(0,)))
    assert counted.made == 4


def test_it_is_made_again_when_its_models_changed(lab, trained):
    counted = Counted()
    perform(counted.experiment, lab)
    shutil.rmtree(lab.place("oe"))
    perform(counted.experiment, lab)
    assert counted.made == 1  # the model is gone, but its numbers stand
    shutil.copytree(trained.run("oe", 1), lab.place("oe"))
    perform(counted.experiment, lab)
    assert counted.made == 2
    document = json.loads(counted.experiment.file(lab).read_text())
    assert document["models"] == {"oe-0": trained.weights("oe", 1)}
    shutil.copytree(trained.folder / "plain", lab.place("plain"), dirs_exist_ok=True)  # which it is not about
    perform(counted.experiment, lab)
    assert counted.made == 2


def test_a_view_is_made_each_time_and_written_when_it_differs(lab):
    counted = Counted("table")
    perform(counted.experiment, lab)
    file = counted.experiment.file(lab)
    before = file.stat().st_mtime_ns
    perform(counted.experiment, replace(lab, command="another"))
    assert (counted.made, file.stat().st_mtime_ns) == (2, before)
    counted.value = 2
    perform(counted.experiment, lab)
    assert json.loads(file.read_text())["content"] == {"value": 2}


def test_notes_and_models_do_not_pass_from_one_experiment_to_the_next(lab):
    perform(Counted().experiment, lab)
    quiet = Experiment("table", "quiet", "quiet", "nowhere", lambda lab: {"run": str(lab.run("plain"))}, str)
    document = json.loads(perform(quiet, lab).read_text())
    assert (list(document["models"]), document["notes"]) == (["plain-0"], [])


def test_one_without_any_model_replaces_nothing(lab):
    file = perform(Counted().experiment, lab)
    before = file.read_bytes()
    empty = Experiment("figure", "counted", "counted", "nowhere", lambda lab: {}, str)
    with pytest.raises(NotFound):
        perform(empty, replace(lab, seeds=(7,)))
    assert file.read_bytes() == before


def test_what_is_no_number_is_not_written(lab):
    counted = Counted()
    counted.value = math.inf
    with pytest.raises(Diverged):
        perform(counted.experiment, lab)
    assert not counted.experiment.file(lab).exists()


def test_one_that_fails_does_not_lose_the_others(lab):
    def fail(lab):
        raise ProodError("the dog ate it")

    first, last = Counted(name="first"), Counted(name="last")
    broken = Experiment("table", "broken", "broken", "nowhere", fail, str)
    failed = perform_all([first.experiment, broken, last.experiment], lab)
    assert failed == {"table-broken": "the dog ate it"}
    assert (first.made, last.made) == (1, 1)
    assert not broken.file(lab).exists()
    assert "table-broken: the dog ate it" in lab.console.file.getvalue()


def test_a_damaged_file_is_said(lab):
    counted = Counted()
    file = Path(counted.experiment.file(lab))
    file.parent.mkdir(parents=True)
    file.write_text("{half")
    with pytest.raises(Damaged, match=r"figure-counted\.json"):
        perform(counted.experiment, lab)
