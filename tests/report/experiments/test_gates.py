"""The figure on shifts and gates, on models trained in seconds."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prood.detector import gates as schedules
from prood.detector.gates import Schedule
from prood.models import Gated, load
from prood.report.experiments import EXPERIMENTS, gates, perform
from prood.studies import Runner, choose_shift, making, measure, pairs_of
from prood.studies.gating import gate_from
from prood.studies.shift import Candidate

FIGURE = gates.EXPERIMENT


@pytest.fixture(scope="module")
def runner(runner_in: Callable[..., Runner], tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return runner_in(tmp_path_factory.mktemp("gates"))


@pytest.fixture(scope="module")
def found(runner: Runner) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "LEAST", 5)  # the recipe keeps ten images back
        patch.setattr(gates, "SHIFTS", (-4.0, 0.0, 4.0))
        return json.loads(perform(FIGURE, runner).read_text())["content"]


def test_it_is_registered() -> None:
    assert FIGURE in EXPERIMENTS


@pytest.mark.slow
def test_gates_are_measured_as_models_are(runner: Runner, found: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "LEAST", 5)
    f, g = load(runner.run("oe"))[0], load(runner.run("discriminator"))[0]
    inside, outside = runner.held_back()
    held = pairs_of(f, g, inside, {"held": outside}, runner.eps)["held"]
    one = found["gates"]["growing share"][5]
    gate = gate_from(held, found["chosen"], Schedule(one["provable"], one["last"]))
    model = Gated(f, g, gate, found["chosen"]).eval()
    tests = [measure(model, runner.inside(), images, runner.eps) for images in runner.outside().values()]
    for key in ("auc", "gauc"):
        assert one["test"][key] == pytest.approx(np.mean([getattr(each, key) for each in tests]), abs=1e-3)


@pytest.mark.slow
def test_what_is_chosen_is_chosen_on_held_back_images(runner: Runner, found: dict) -> None:
    f, g = load(runner.run("oe"))[0], load(runner.run("discriminator"))[0]
    inside, outside = runner.held_back()
    held = pairs_of(f, g, inside, {"held": outside}, runner.eps)["held"]
    candidates = [Candidate(shift, *held.measure(shift)) for shift in making.SHIFTS]
    expected = choose_shift(candidates, held.classifier_auc, tolerance=making.TOLERANCE)
    assert found["chosen"] == expected.shift
    assert [one["provable"] for one in found["gates"]["constant share"]] == list(gates.PROVABLE)
    assert not any("/" in name for name in found["sets"])  # no folder of one machine


@pytest.mark.slow
def test_no_proof_exceeds_what_is_measured_nor_g_alone(found: dict) -> None:
    rows = [*found["shifts"], *(one for kind in found["gates"].values() for one in kind)]
    for one in rows:
        for kind in ("held_back", "test"):
            assert one[kind]["gauc"] <= one[kind]["auc"]
            assert all(sure >= clean for clean, sure in zip(one[kind]["fpr"], one[kind]["gfpr"], strict=True))
        assert one["test"]["gauc"] <= found["g_alone"]["gauc"]


def test_the_best_shift_on_the_test_sets() -> None:
    points = [{"test": {"auc": auc, "gauc": gauc}} for auc, gauc in ((0.9, 0.7), (0.95, 0.6), (0.97, 0.5))]
    assert gates.best_at(points, 0.92) == 0.6
    assert gates.best_at(points, 0.98) is None


@pytest.mark.slow
def test_figure_and_text_follow_from_the_content(found: dict, tmp_path: Path) -> None:
    for file in ("a.svg", "b.svg"):
        FIGURE.draw(found, tmp_path / file)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()
    changed = json.loads(json.dumps(found))
    changed["gates"]["constant share"][0]["test"]["gfpr"][1] = 1 - 0.123
    FIGURE.draw(changed, tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_bytes() != drawn
    assert " / 12.3 " in FIGURE.section(changed)
    assert " / 12.3 " not in FIGURE.section(found)
