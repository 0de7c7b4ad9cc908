"""The figures on the shift and on the fusion, on models trained in seconds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from prood.models import Curve, Fusion, ProoD, load
from prood.report.experiments import EXPERIMENTS, perform, tradeoff
from prood.studies import Candidate, Lab, choose_shift, measure, study_of
from prood.studies.curve import SHIFTS
from prood.studies.making import TOLERANCE


@pytest.fixture(scope="module")
def lab(lab_in: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return lab_in(tmp_path_factory.mktemp("fusion"))


@pytest.fixture(scope="module")
def fused(lab: Lab) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tradeoff, "DROPS", (0.0, 5.0, 20.0))
        return json.loads(perform(tradeoff.FUSION, lab).read_text())["content"]


@pytest.fixture(scope="module")
def shifts(lab: Lab) -> dict:
    return json.loads(perform(tradeoff.SHIFT, lab).read_text())["content"]


def test_they_are_registered() -> None:
    assert {tradeoff.FUSION, tradeoff.SHIFT} <= set(EXPERIMENTS)


@pytest.mark.slow
def test_fusions_are_measured_as_models_are(lab: Lab, fused: dict) -> None:
    f, g = load(lab.run("oe"))[0], load(lab.run("discriminator"))[0]
    one = fused["fusions"][2]
    model = Fusion(f, g, Curve(**one["curve"]))
    inside, outside = lab.held_back()
    found = measure(model, inside, outside, lab.eps)
    assert (found.auc, found.gauc) == pytest.approx(tuple(one["held_back"].values()), abs=1e-6)
    tests = [measure(model, lab.inside(), images, lab.eps) for images in lab.outside().values()]
    assert one["test"]["auc"] == pytest.approx(sum(each.auc for each in tests) / len(tests), abs=1e-3)
    assert one["test"]["gauc"] == pytest.approx(sum(each.gauc for each in tests) / len(tests), abs=1e-3)


@pytest.mark.slow
def test_every_fit_keeps_its_auc_and_is_no_worse_than_a_shift(fused: dict) -> None:
    assert [one["shift"] for one in fused["shifts"]] == list(SHIFTS)
    for one in fused["fusions"]:
        least = fused["classifier_auc"]["held_back"] - one["auc_drop"] / 100
        single = next(each for each in fused["shifts"] if each["shift"] == one["single_shift"])
        if single["held_back"]["auc"] >= least:
            assert one["held_back"]["auc"] >= least
        assert one["held_back"]["gauc"] <= fused["ceiling"]["held_back"]
    assert not any("/" in name for name in fused["sets"])  # no folder of one machine


def test_the_best_shift_on_the_test_sets() -> None:
    points = [{"test": {"auc": auc, "gauc": gauc}} for auc, gauc in ((0.9, 0.7), (0.95, 0.6), (0.97, 0.5))]
    assert tradeoff.best_at(points, 0.92) == 0.6
    assert tradeoff.best_at(points, 0.98) is None


def test_the_shift_is_chosen_by_the_rule(lab: Lab, shifts: dict) -> None:
    assert set(shifts["curves"]) == {"OE's classifier", "ProoD's classifier"}
    for curve in shifts["curves"].values():
        candidates = [Candidate(**one) for one in curve["shifts"]]
        assert [one.shift for one in candidates] == [quarter / 4 for quarter in range(25)]
        assert curve["chosen"] == choose_shift(candidates, shifts["baseline"]["auc"], tolerance=TOLERANCE).shift
    model = ProoD(load(lab.run("oe"))[0], load(lab.run("discriminator"))[0], 2.0)
    found = measure(model, *lab.held_back(), lab.eps)
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
    lab = Lab(study_of("cifar10"), tmp_path / "runs", results=tmp_path / "results", training=False)
    assert tradeoff.SHIFT.make(lab)["curves"] == {}
    assert lab.notes == [f"{title} is left out: its weights are not here" for title in tradeoff.COMBINED.values()]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fusion", "shift"])
def test_figures_and_texts_follow_from_the_content(name: str, fused: dict, shifts: dict, tmp_path: Path) -> None:
    experiment, content = {"fusion": (tradeoff.FUSION, fused), "shift": (tradeoff.SHIFT, shifts)}[name]
    for file in ("a.svg", "b.svg"):
        experiment.draw(content, tmp_path / file)
    drawn = (tmp_path / "a.svg").read_bytes()
    assert drawn == (tmp_path / "b.svg").read_bytes()
    changed = json.loads(json.dumps(content))
    points = changed["fusions"] if name == "fusion" else changed["curves"]["OE's classifier"]["shifts"]
    (points[0]["test"] if name == "fusion" else points[0])["gauc"] = 0.1234
    experiment.draw(changed, tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_bytes() != drawn
    assert "12.34" in experiment.section(changed)
    assert "12.34" not in experiment.section(content)
