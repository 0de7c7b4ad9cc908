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

    def make(self, runner):
        self.made += 1
        runner.run("oe")
        runner.notes.append("Mind the gap.")
        return {"value": self.value}


@pytest.fixture
def runner(trained, runner_in, tmp_path):
    """With the trained models in a folder of its own."""
    shutil.copytree(trained.folder, tmp_path / "runs")
    return runner_in(tmp_path)


@pytest.mark.slow
def test_the_file_says_how_it_came_about(runner):
    file = perform(Counted().experiment, runner)
    assert file == runner.results / "tiny" / "experiments" / "figure-counted.json"
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
        "models": {"oe-0": runner.weights("oe")},
        "notes": ["Mind the gap."],
        "content": {"value": 1},
    }


def test_what_is_there_is_made_again_only_for_a_reason(runner):
    counted = Counted()
    perform(counted.experiment, runner)
    before = counted.experiment.file(runner).read_bytes()
    perform(counted.experiment, runner)
    assert counted.made == 1
    assert counted.experiment.file(runner).read_bytes() == before
    perform(counted.experiment, runner, again=True)
    assert counted.made == 2
    perform(counted.experiment, replace(runner, study=replace(runner.study, attacked=4)))
    assert counted.made == 3
    perform(counted.experiment, replace(runner, seeds=(0,)))
    assert counted.made == 4


def test_it_is_made_again_when_its_models_changed(runner, trained):
    counted = Counted()
    perform(counted.experiment, runner)
    shutil.rmtree(runner.place("oe"))
    perform(counted.experiment, runner)
    assert counted.made == 1  # the model is gone, but its numbers stand
    shutil.copytree(trained.run("oe", 1), runner.place("oe"))
    perform(counted.experiment, runner)
    assert counted.made == 2
    document = json.loads(counted.experiment.file(runner).read_text())
    assert document["models"] == {"oe-0": trained.weights("oe", 1)}
    shutil.copytree(trained.folder / "plain", runner.place("plain"), dirs_exist_ok=True)  # which it is not about
    perform(counted.experiment, runner)
    assert counted.made == 2


def test_a_view_is_made_each_time_and_written_when_it_differs(runner):
    counted = Counted("table")
    perform(counted.experiment, runner)
    file = counted.experiment.file(runner)
    before = file.stat().st_mtime_ns
    perform(counted.experiment, replace(runner, command="another"))
    assert (counted.made, file.stat().st_mtime_ns) == (2, before)
    counted.value = 2
    perform(counted.experiment, runner)
    assert json.loads(file.read_text())["content"] == {"value": 2}


def test_notes_and_models_do_not_pass_from_one_experiment_to_the_next(runner):
    perform(Counted().experiment, runner)
    quiet = Experiment("table", "quiet", "quiet", "nowhere", lambda runner: {"run": str(runner.run("plain"))}, str)
    document = json.loads(perform(quiet, runner).read_text())
    assert (list(document["models"]), document["notes"]) == (["plain-0"], [])


def test_one_without_any_model_replaces_nothing(runner):
    file = perform(Counted().experiment, runner)
    before = file.read_bytes()
    empty = Experiment("figure", "counted", "counted", "nowhere", lambda runner: {}, str)
    with pytest.raises(NotFound):
        perform(empty, replace(runner, seeds=(7,)))
    assert file.read_bytes() == before


def test_what_is_no_number_is_not_written(runner):
    counted = Counted()
    counted.value = math.inf
    with pytest.raises(Diverged):
        perform(counted.experiment, runner)
    assert not counted.experiment.file(runner).exists()


def test_one_that_fails_does_not_lose_the_others(runner):
    def fail(runner):
        raise ProodError("the dog ate it")

    first, last = Counted(name="first"), Counted(name="last")
    broken = Experiment("table", "broken", "broken", "nowhere", fail, str)
    failed = perform_all([first.experiment, broken, last.experiment], runner)
    assert failed == {"table-broken": "the dog ate it"}
    assert (first.made, last.made) == (1, 1)
    assert not broken.file(runner).exists()
    assert "table-broken: the dog ate it" in runner.console.file.getvalue()


def test_a_damaged_file_is_said(runner):
    counted = Counted()
    file = Path(counted.experiment.file(runner))
    file.parent.mkdir(parents=True)
    file.write_text("{half")
    with pytest.raises(Damaged, match=r"figure-counted\.json"):
        perform(counted.experiment, runner)
