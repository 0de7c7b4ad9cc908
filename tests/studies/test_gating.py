"""Schedules that are fitted on held-back images: prices are kept, proofs are gained, and what cannot be is refused."""

import json

import numpy as np
import pytest
import torch

from prood import data
from prood.detector import Detector
from prood.detector.gates import Schedule, for_gate
from prood.errors import AlreadyThere, BadValue, UnknownName
from prood.models import Gated, ProoD, discriminator, load, save, small
from prood.studies import Pairs, gating
from prood.studies.gating import (
    ACCEPTED,
    PRICES,
    Asked,
    Outliers,
    Price,
    calibrate_model,
    fit_schedule,
    judged,
    price,
    table,
)

SHIFT = 1.0


@pytest.fixture(scope="module")
def sample():
    """A classifier that tells better than g, as on photographs, and bounds a little above g."""
    random = np.random.default_rng(0)
    g_in, g_out = 2 - random.gamma(2.0, 0.5, 1500), 1.2 - random.gamma(2.0, 1.0, 600)
    s_in, s_out = random.normal(3, 2, 1500), random.normal(0, 2, 600)
    bound = np.minimum(g_out + random.exponential(0.3, 600), 2)
    return Pairs(*(torch.from_numpy(values) for values in (s_in, g_in, s_out, g_out, bound)))


@pytest.mark.parametrize("name", PRICES)
def test_a_fitted_schedule_keeps_its_price_and_proves_more(sample, name):
    found = fit_schedule([sample], SHIFT, PRICES[name])
    assert found.with_it.fpr[0] - found.without.fpr[0] <= PRICES[name].fpr
    assert found.without.auc - found.with_it.auc <= PRICES[name].auc
    assert sum(found.with_it.gfpr) < sum(found.without.gfpr)
    assert found.without == judged([sample], SHIFT, Schedule(0.0))


def test_a_price_is_kept_with_room_for_chance(sample):
    """One standard error: with a tenth of the images outside, less is spent at the same price."""
    few = Pairs(sample.s_in, sample.g_in, sample.s_out[::10], sample.g_out[::10], sample.bound_out[::10])
    repeated = Pairs(few.s_in, few.g_in, *(values.repeat(10) for values in (few.s_out, few.g_out, few.bound_out)))
    sure, unsure = (fit_schedule([one], SHIFT, Price(0.05)).schedule for one in (repeated, few))
    assert unsure.provable < sure.provable


def test_a_point_gives_a_model_its_gate(sample):
    joint = ProoD(small(3, width=4), discriminator("digits-XS", image=(1, 8, 8)), SHIFT)
    made, provable = gating.at_point(joint, [sample], "strong")
    schedule = fit_schedule([sample], SHIFT, PRICES["strong"]).schedule
    assert isinstance(made, Gated)
    assert (made.gate, provable) == (gating.gate_from(sample, SHIFT, schedule), schedule.provable)
    hopeless = Pairs(sample.s_in, sample.g_in, sample.s_out, sample.g_in[:600], sample.bound_out + 9)
    assert gating.at_point(joint, [hopeless], "default") == (joint, 0.0)


def test_a_higher_price_proves_no_less(sample):
    cheap, dear = (fit_schedule([sample], SHIFT, PRICES[name]) for name in ("default", "strong"))
    assert sum(dear.with_it.gfpr) <= sum(cheap.with_it.gfpr)


def test_where_g_ranks_worse_the_last_share_stays_that_of_the_beginning():
    """A share that grows with the level costs several times the AUC; the constant one lowers both rates."""
    random, count = np.random.default_rng(0), 1500
    s_in, s_out, g_in = random.normal(4, 2.5, count), random.normal(1.36, 2.5, count), 3 - random.gamma(2.0, 0.8, count)
    far = random.random(count) < 0.25  # of these g is sure, and of no others
    g_out = np.where(far, -2 - random.gamma(2.0, 0.8, count), 3 - random.gamma(2.0, 1.0, count))
    values = (s_in, g_in, s_out, g_out, g_out + 0.6 * random.random(count))
    weak = [Pairs(*(torch.from_numpy(value) for value in values))]
    found = fit_schedule(weak, 2.0, PRICES["default"])
    assert found.schedule.end == found.schedule.provable >= 0.3
    assert found.without.auc - found.with_it.auc <= PRICES["default"].auc
    assert found.with_it.fpr[0] <= found.without.fpr[0] + PRICES["default"].fpr
    assert found.with_it.gfpr[0] <= found.without.gfpr[0] - 0.03
    growing = judged(weak, 2.0, Schedule(found.schedule.provable, 0.95))
    assert found.without.auc - growing.auc > 3 * (found.without.auc - found.with_it.auc)


def test_verdicts_are_means_over_sets(sample):
    other = Pairs(sample.s_in, sample.g_in, sample.s_out - 3, sample.g_out, sample.bound_out)
    one, two, both = (judged(sets, SHIFT, Schedule(0.3)) for sets in ([sample], [other], [sample, other]))
    assert both.auc == pytest.approx((one.auc + two.auc) / 2)
    assert both.fpr == pytest.approx([(a + b) / 2 for a, b in zip(one.fpr, two.fpr, strict=True)])


def test_proofs_never_reject_more_than_there_is_to_reject(sample):
    for share in (0.0, 0.3, 0.9):
        found = judged([sample], SHIFT, Schedule(share))
        assert found.gauc <= found.auc
        assert all(sure >= clean for clean, sure in zip(found.fpr, found.gfpr, strict=True))
        assert list(found.fpr) == sorted(found.fpr, reverse=True)


def test_the_table_has_a_line_for_each_share(sample):
    head, *lines = table([sample], SHIFT)
    assert len(head) == 2 + len(ACCEPTED)
    assert all(len(line) == len(head) for line in lines)
    assert lines[0][0] == "0"


def test_points_and_prices():
    assert price("default").fpr < price("strong").fpr
    with pytest.raises(UnknownName, match="strongest"):
        Asked(provable="strongest").schedule([], 0.0)
    with pytest.raises(BadValue, match="--outside"):
        Asked(provable="strong").schedule([], 0.0)
    with pytest.raises(BadValue, match=r"1\.5"):
        Asked(provable="1.5").schedule([], 0.0)
    with pytest.raises(BadValue):
        Price(-0.1)
    assert Asked(provable="0.3").schedule([], 0.0) == Schedule(0.3)
    assert Asked().schedule([], 0.0) is None


@pytest.fixture
def run(tmp_path):
    torch.manual_seed(3)
    f, g = small(8, width=4).eval(), discriminator("digits", image=(1, 28, 28)).eval()
    with torch.no_grad():
        f[-1].weight.mul_(60)
        g.last.log_weight.sub_(2.0)
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
        return fit_schedule(samples, *rest)

    monkeypatch.setattr(gating, "fit_schedule", spy)
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
