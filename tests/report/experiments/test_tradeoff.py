"""The figure on the shift, on models trained in seconds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from prood.models import ProoD, load
from prood.report.experiments import EXPERIMENTS, perform, tradeoff
from prood.studies import Candidate, Runner, choose_shift, measure, study_of
from prood.studies.making import TOLERANCE


@pytest.fixture(scope="module")
def runner(runner_in: Callable[..., Runner], tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return runner_in(tmp_path_factory.mktemp("shift"))


@pytest.fixture(scope="module")
def shifts(runner: Runner) -> dict:
    return json.loads(perform(tradeoff.SHIFT, runner).read_text())["content"]


def test_it_is_registered() -> None:
    assert tradeoff.SHIFT in EXPERIMENTS


def test_the_shift_is_chosen_by_the_rule(runner: Runner, shifts: dict) -> None:
    assert set(shifts["curves"]) == {"OE's classifier", "ProoD's classifier"}
    for curve in shifts["curves"].values():
        candidates = [Candidate(**one) for one in curve["shifts"]]
        assert [one.shift for one in candidates] == [quarter / 4 for quarter in range(25)]
        assert curve["chosen"] == choose_shift(candidates, shifts["baseline"]["auc"], tolerance=TOLERANCE).shift
    model = ProoD(load(runner.run("oe"))[0], load(runner.run("discriminator"))[0], 2.0)
    found = measure(model, *runner.held_back(), runner.eps)
    listed = Candidate(**shifts["curves"]["OE's classifier"]["shifts"][8])
    assert (listed.auc, listed.gauc, listed.accuracy) == pytest.approx(
        (found.auc, found.gauc, found.accuracy), abs=1e-6
    )


def test_a_table_of_shifts_has_whole_ones_and_those_that_were_chosen(shifts: dict) -> None:
    changed = json.loads(json.dumps(shifts))
    changed["curves"]["OE's classifier"]["chosen"] = 2.75
    text = tradeoff.SHIFT.section(changed)
    rows = [line.split(" | ")[0].strip("| ") for line in text.splitlines() if line.startswith("| ")]
    other = changed["curves"]["ProoD's classifier"]["chosen"]
    assert rows[2:] == [f"{one:g}" for one in sorted({*range(7), 2.75, other})]


def test_without_models_there_is_no_choice(tmp_path: Path) -> None:
    runner = Runner(study_of("cifar10"), tmp_path / "runs", results=tmp_path / "results", training=False)
    assert tradeoff.SHIFT.make(runner)["curves"] == {}
    assert runner.notes == [f"{title} is left out: its weights are not here" for title in tradeoff.COMBINED.values()]


@pytest.mark.slow
def test_figure_and_text_follow_from_the_content(shifts: dict, tmp_path: Path) -> None:
    for file in ("a.svg", "b.svg"):
        tradeoff.SHIFT.draw(shifts, tmp_path / file)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()
    changed = json.loads(json.dumps(shifts))
    changed["curves"]["OE's classifier"]["shifts"][0]["gauc"] = 0.1234
    tradeoff.SHIFT.draw(changed, tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_bytes() != drawn
    assert "12.34" in tradeoff.SHIFT.section(changed)
    assert "12.34" not in tradeoff.SHIFT.section(shifts)
