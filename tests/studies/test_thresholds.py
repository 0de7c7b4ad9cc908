"""What is asked of a threshold is checked before the model is made, as it will be met after; and setting it."""

import json

import pytest
import torch

from prood import data
from prood.detector import Detector
from prood.detector.gates import Schedule, for_gate
from prood.errors import AlreadyThere, BadValue, UnknownName
from prood.models import Gated, ProoD, discriminator, load, save, small
from prood.studies import gating, thresholds
from prood.studies.thresholds import Asked, Outliers, Threshold, calibrate_model


def parts():
    torch.manual_seed(3)
    f, g = small(8, width=4).eval(), discriminator("digits", image=(1, 28, 28)).eval()
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
    return f, g


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder, (f, g) = tmp_path_factory.mktemp("thresholds"), parts()
    save(g, folder / "g" / "model.safetensors", eps=0.1)
    save(ProoD(f, g, 1.5), folder / "joint" / "model.safetensors", eps=0.1)
    return folder


def test_what_passes_the_check_can_be_set(runs):
    wanted = Threshold("digits:validation", Asked(0.9, 0.9))
    wanted.check(runs / "g")
    found = wanted.set(runs / "joint", "cpu")
    detector = Detector.load(runs / "joint")
    assert detector.accept == 0.9
    assert f"{detector.threshold:.6g}" in found.words
    assert 0 <= found.accuracy <= 1


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (Threshold("digits:nothing"), UnknownName),
        (Threshold("digits:validation", Asked(0.9999)), BadValue),  # too few images
        (Threshold("digits:validation", Asked(0.98, 0.95, "0.2")), BadValue),  # half of them are too few
        (Threshold("digits:validation", Asked(provable="strong"), Outliers(["faces"])), BadValue),  # a fit takes 400
        (Threshold("digits:validation", Asked(provable="2")), BadValue),
    ],
)
def test_what_cannot_be_met_is_refused_before_and_would_be_after(runs, wanted, kind):
    with pytest.raises(kind):
        wanted.check(runs / "g")
    before = (runs / "joint" / "model.safetensors").read_bytes()
    with pytest.raises(BadValue, match="joint"):
        wanted.set(runs / "joint", "cpu")
    assert (runs / "joint" / "model.safetensors").read_bytes() == before
    assert load(runs / "joint")[1].eps == 0.1


def test_what_is_asked_for():
    with pytest.raises(UnknownName, match="strongest"):
        Asked(provable="strongest").schedule([], 0.0)
    with pytest.raises(BadValue, match="--outside"):
        Asked(provable="strong").schedule([], 0.0)
    with pytest.raises(BadValue, match=r"1\.5"):
        Asked(provable="1.5").schedule([], 0.0)
    assert Asked(provable="0.3").schedule([], 0.0) == Schedule(0.3)
    assert Asked().schedule([], 0.0) is None


@pytest.fixture
def run(tmp_path):
    f, g = parts()
    names = [f"digit {n}" for n in range(8)]
    save(ProoD(f, g, 1.5).eval(), tmp_path / "run" / "model.safetensors", classes=names, eps=0.1, seed=7)
    return tmp_path / "run"


def test_calibrating_a_run_keeps_what_its_file_says(run):
    before, about = load(run)
    found = calibrate_model(str(run), "digits:validation", Asked(0.9, 0.9, "0.4"), outliers=Outliers())
    model, after = load(run)
    assert isinstance(model, Gated)
    assert (after.classes, after.eps, after.seed, after.accept) == (about.classes, 0.1, 7, 0.9)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.state_dict().items())
    assert f"{after.threshold:.6g}" in found.words
    assert json.loads((run / "calibration.json").read_text())["threshold"] == after.threshold
    assert Detector.load(run).calibration is not None


@pytest.mark.parametrize(
    "asked", [Asked(0.999), Asked(provable="1.5"), Asked(0.98, 0.95, "0.2"), Asked(provable="strong")]
)
def test_what_cannot_be_met_is_refused_before_the_work(run, monkeypatch, asked):
    monkeypatch.setattr(thresholds, "pairs_of", lambda *_, **__: pytest.fail("computed first"))
    with pytest.raises(BadValue):
        calibrate_model(str(run), "digits:validation", asked, outliers=Outliers(["faces:test"], eps=0.1, limit=20))


def test_nothing_asked_changes_nothing(run):
    before = (run / "model.safetensors").read_bytes()
    found = calibrate_model(str(run), "digits:validation", None, outliers=Outliers(["faces:test"], limit=20))
    assert len(found.table) > 2
    assert (run / "model.safetensors").read_bytes() == before


def test_another_folder_takes_the_result(run, tmp_path):
    calibrate_model(str(run), "digits:validation", Asked(), outliers=Outliers(), out=tmp_path / "other")
    assert load(tmp_path / "other")[1].accept == 0.95
    assert load(run)[1].accept is None
    with pytest.raises(AlreadyThere):
        calibrate_model(str(run), "digits:validation", Asked(), outliers=Outliers(), out=tmp_path / "other")
    with pytest.raises(BadValue, match="--out"):
        calibrate_model(str(run / "model.safetensors"), "digits:validation", Asked(), outliers=Outliers())


def test_only_the_images_of_the_gate_choose_the_schedule(run, monkeypatch):
    """Those of the threshold have no say in anything before it, or it would promise too much."""
    seen = []

    def spy(samples, *rest):
        seen.extend(samples)
        return gating.fit_schedule(samples, *rest)

    monkeypatch.setattr(thresholds, "fit_schedule", spy)
    outliers = Outliers(["faces:test"], eps=0.1, limit=20)
    calibrate_model(str(run), "digits:test", Asked(provable="default"), outliers=outliers)
    model, _ = load(run)
    count = len(data.load("digits:test"))
    expected = model.discriminator.covered(data.load("digits:test").floats()[for_gate(count)]).detach()
    assert [len(one.g_in) for one in seen] == [len(expected)]
    assert len(expected) == (count + 1) // 2
    torch.testing.assert_close(seen[0].g_in, expected.double(), rtol=1e-5, atol=1e-5)


def test_a_point_takes_enough_images(run):
    outliers = Outliers(["faces:test"], eps=0.1, limit=20)
    with pytest.raises(BadValue, match="400"):
        calibrate_model(str(run), "digits:validation", Asked(provable="strong"), outliers=outliers)


def test_a_damaged_calibration_is_made_anew(run):
    calibrate_model(str(run), "digits:validation", Asked(), outliers=Outliers())
    (run / "calibration.json").write_text("{")
    calibrate_model(str(run), "digits:validation", Asked(0.9), outliers=Outliers())
    assert Detector.load(run).calibration.accept == 0.9
