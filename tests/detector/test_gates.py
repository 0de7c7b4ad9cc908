"""Spending false rejections on two gates: shares, nested levels, and the promise of the threshold."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.detector import Detector
from prood.detector.gates import LEAST, LEVELS, Schedule, gate_of
from prood.errors import BadValue, Diverged, Unsupported
from prood.models import Curve, Fusion, Gated, ProoD, score_of
from prood.models.confidence import threshold_at

shares = st.floats(0, 1)


def drawn(seed, count=2000):
    """Joint scores S and g + Δ of images, with S below g + Δ as always."""
    random = np.random.default_rng(seed)
    in_logits = 3 - random.gamma(2.0, 1.0, count)
    scores = in_logits - random.exponential(1.5, count)
    return scores, in_logits


def rejected(gate, scores, in_logits, threshold):
    return np.minimum(scores, gate(torch.from_numpy(in_logits)).numpy()) < threshold


@given(first=shares, last=shares, q=shares, more=shares)
def test_a_schedule_spends_no_more_than_there_is_and_never_less(first, last, q, more):
    schedule = Schedule(min(first, last), max(first, last))
    low, high = sorted((q, more))
    assert 0 <= schedule(low) <= low + 1e-12
    assert schedule(low) <= schedule(high) + 1e-12
    assert schedule(high) - schedule(low) <= (high - low) * schedule.end + 1e-12


def test_the_rate_is_as_said():
    schedule = Schedule(0.2, 0.9)
    assert schedule(0.05) == pytest.approx(0.01)
    assert (schedule(0.6) - schedule(0.5)) / 0.1 == pytest.approx(0.9)
    assert Schedule(0.3)(0.7) == pytest.approx(0.21)


@pytest.mark.parametrize("schedule", [Schedule(0.2), Schedule(0.5, 0.95), Schedule(1.0)])
def test_at_each_level_g_rejects_its_share_and_both_together_theirs(schedule):
    scores, in_logits = drawn(0)
    gate = gate_of(schedule, scores, in_logits)
    for knot, cap in zip(gate.knots, gate.caps, strict=True):
        by_g, all_of_them = (in_logits < knot).mean(), rejected(gate, scores, in_logits, cap).mean()
        assert all_of_them >= by_g
        nearest = min(LEVELS, key=lambda q: abs(q - all_of_them))
        if cap < knot:  # else S ≤ g + Δ rejects more than g was to spend
            assert all_of_them == pytest.approx(nearest, abs=3e-3)
            assert by_g == pytest.approx(schedule(nearest), abs=3e-3)


def test_what_is_rejected_at_one_level_is_rejected_at_the_next():
    scores, in_logits = drawn(1)
    gate = gate_of(Schedule(0.3, 0.9), scores, in_logits)
    before = np.zeros(len(scores), dtype=bool)
    for cap in gate.caps:
        now = rejected(gate, scores, in_logits, cap)
        assert (before <= now).all()
        before = now


def test_nothing_to_spend_is_no_gate():
    assert not gate_of(Schedule(0.0), *drawn(0)).knots


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_share_is_between_0_and_1(wrong):
    with pytest.raises(BadValue, match="provable"):
        Schedule(wrong)


def test_a_schedule_that_falls_is_refused():
    with pytest.raises(BadValue, match="last"):
        Schedule(0.5, 0.2)


def test_images_that_make_no_gate():
    scores, in_logits = drawn(0)
    with pytest.raises(BadValue, match=str(LEAST)):
        gate_of(Schedule(0.2), scores[: LEAST - 1], in_logits[: LEAST - 1])
    with pytest.raises(Unsupported):
        gate_of(Schedule(0.2), scores, np.full_like(in_logits, 2.0))
    with pytest.raises(Diverged):
        gate_of(Schedule(0.2), scores, np.where(in_logits > 2, np.nan, in_logits))


def test_ties_make_fewer_levels():
    scores, in_logits = drawn(0)
    gate = gate_of(Schedule(0.3), np.round(scores), np.round(in_logits))
    assert 1 < len(gate.knots) < len(LEVELS)


@pytest.mark.parametrize("schedule", [Schedule(0.3), Schedule(0.4, 0.9), Schedule(0.0, 1.0), Schedule(1.0)])
def test_the_promise_holds_over_many_splits(schedule):
    """With level 0.9 at most about a tenth of the thresholds accept less than asked for, whatever the gate is."""
    kept = 0
    for seed in range(300):
        scores, in_logits = drawn(seed, 6000)
        gate = gate_of(schedule, scores[:500], in_logits[:500])
        found = np.minimum(scores, gate(torch.from_numpy(in_logits)).numpy())

        threshold = threshold_at(found[500:1000], 0.9, 0.9)
        kept += (found[1000:] >= threshold).mean() >= 0.9
    assert kept >= 0.85 * 300


# In a detector


@pytest.fixture
def detector(parts):
    return Detector(ProoD(*parts, 1.5))


@pytest.fixture(scope="module")
def images():
    return torch.rand(400, 1, 28, 28, generator=torch.Generator().manual_seed(5))


def test_calibrating_with_a_share_gates_the_model(detector, images):
    weights = {name: value.clone() for name, value in detector.model.state_dict().items()}
    found = detector.calibrate(images, accept=0.8, provable=0.5)
    assert isinstance(detector.model, Gated)
    assert detector.model.gate.knots
    assert len(found) == 200  # the other half made the gate
    assert all(torch.equal(detector.model.state_dict()[name], value) for name, value in weights.items())
    accepted = detector.predict(images)
    assert np.array_equal(accepted.accepted, accepted.confidence >= found.threshold)
    torch.testing.assert_close(
        torch.from_numpy(accepted.probabilities).sum(1), torch.ones(400).double(), rtol=1e-6, atol=1e-6
    )
    assert (detector.certify(images[:20], 0.01).upper_bound >= accepted.confidence[:20]).all()


@pytest.mark.parametrize("provable", ["strong", "0.3", [0.2], 1.5, -0.1, float("nan")])
def test_what_is_no_share_is_refused_and_changes_nothing(detector, images, provable):
    model = detector.model
    with pytest.raises(BadValue, match="provable"):
        detector.calibrate(images, provable=provable)
    assert (detector.model, detector.threshold) == (model, None)


def test_nothing_to_spend_gives_the_rule_of_before(detector, images):
    plain = detector.calibrate(images, accept=0.8)
    before = detector.predict(images)
    detector.calibrate(images, accept=0.8, provable=0.6)
    again = detector.calibrate(images, accept=0.8, provable=0)
    assert not isinstance(detector.model, Gated)
    assert again.threshold == plain.threshold
    assert np.array_equal(detector.predict(images).confidence, before.confidence)


def test_a_gate_that_is_there_stays(detector, images):
    detector.calibrate(images, provable=0.6)
    gate = detector.model.gate
    detector.calibrate(images[:100], accept=0.7)
    assert detector.model.gate == gate


def test_what_fails_changes_nothing(detector, images):
    detector.calibrate(images, provable=0.6)
    model, threshold = detector.model, detector.threshold
    with pytest.raises(BadValue, match=str(2 * LEAST)):
        detector.calibrate(images[:150], provable=0.3)
    assert (detector.model, detector.threshold) == (model, threshold)


def test_a_gated_detector_survives_its_folder(detector, images, tmp_path):
    detector.calibrate(images, provable=0.6)
    detector.save(tmp_path / "run")
    again = Detector.load(tmp_path / "run")
    assert again.model.gate == detector.model.gate
    assert np.array_equal(again.predict(images).confidence, detector.predict(images).confidence)
    assert again.calibration is not None


def test_a_fusion_can_have_no_gate(detector, images):
    parts = detector.model.classifier, detector.model.discriminator
    with pytest.raises(Unsupported):
        Detector(Fusion(*parts, Curve(2.0, 3.0, -0.5))).calibrate(images, provable=0.2)


def test_the_words_of_before_still_work(detector, images):
    assert detector.calibrate(images, tpr=0.9, confidence=0.8).tpr == 0.9
    with pytest.raises(TypeError, match="sensitivity"):
        detector.calibrate(images, sensitivity=0.9)


def test_attacks_and_rankings_use_the_gated_score(detector, images):
    detector.calibrate(images, provable=0.6)
    score = detector.predict(images[:10]).score
    assert np.allclose(score_of(detector.model)(images[:10]).detach().numpy(), score, rtol=1e-6, atol=1e-6)
