"""A gated model behind the detector: which gate rejects, at which p(in), and its adapters."""

import numpy as np
import pytest
import torch

from prood.detector import Detector
from prood.detector.gates import Schedule, gate_of
from prood.detector.pytorch_ood import OutlierScore
from prood.models import Gate, Gated, ProoD
from prood.models.confidence import confidence_of


@pytest.fixture(scope="module")
def floats(digits) -> torch.Tensor:
    return digits.float() / 255


@pytest.fixture
def gated(model, floats) -> Gated:
    """Its gate spends 40% of the false rejections of the first 200 digits."""
    found = Detector(model).predict(floats[:200])
    with torch.no_grad():
        in_logit = model.in_logit(floats[:200]).double().numpy()
    return Gated(model.classifier, model.discriminator, gate_of(Schedule(0.4), found.score, in_logit), 1.5).eval()


@pytest.fixture
def both(floats) -> torch.Tensor:
    """Digits, and dark and bright images of noise."""
    noise = torch.rand(200, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    return torch.cat([floats[200:300], noise[:100] / 3, noise[100:]])


def test_the_reason_is_the_gate_that_rejects(gated, both):
    detector = Detector(gated)
    confidence = detector.predict(both).confidence
    with torch.no_grad():
        alone = ProoD(gated.classifier, gated.discriminator, 1.5).eval().confidence(both).numpy()
    for threshold in np.quantile(confidence, [0.2, 0.5, 0.8]):
        detector.threshold = float(threshold)
        found = detector.predict(both)
        reason = np.array(found.reason, dtype=object)
        assert ((reason == None) == found.accepted).all()  # noqa: E711  # one by one
        by_g = reason == "discriminator"
        assert by_g.any()
        assert (found.p_in[by_g] < detector.p_in_threshold * (1 + 1e-9)).all()
        assert (found.p_in[~by_g] > detector.p_in_threshold * (1 - 1e-9)).all()
        assert (alone[reason == "confidence"] < threshold).all()
        assert [answer.reason for answer in found] == list(found.reason)
    assert "confidence" in found.reason


def test_a_joint_model_and_a_discriminator_say_it_too(model, both):
    detector = Detector(model)
    detector.threshold = float(confidence_of(np.quantile(detector.predict(both).cap, 0.05), 8))
    assert set(detector.predict(both).reason) == {None, "confidence", "discriminator"}
    bare = Detector(model.discriminator)
    assert bare.p_in_threshold is None
    assert set(bare.predict(both).reason) == {None}
    bare.threshold = float(np.median(bare.predict(both).confidence))
    assert set(bare.predict(both).reason) == {None, "discriminator"}
    assert bare.p_in_threshold == pytest.approx(np.median(bare.predict(both).p_in), rel=1e-2)


def test_what_is_proved_to_be_rejected_is_rejected_by_g(gated, both):
    detector = Detector(gated)
    bound = detector.upper_bounds(both, [0.005])[:, 0]
    detector.threshold = float(np.median(bound))
    proved = detector.rule.rejects(bound)
    assert 0 < proved.sum() < len(both)
    for seed in range(5):
        noise = torch.empty_like(both).uniform_(-0.005, 0.005, generator=torch.Generator().manual_seed(seed))
        reason = np.array(detector.predict((both + noise).clamp(0, 1)).reason, dtype=object)
        assert (reason[proved] == "discriminator").all()


def test_a_gate_that_is_never_lower_changes_no_verdict(model, both):
    """λ(x) = x: two gates are the one threshold of the joint model."""
    plain, gated = (
        Detector(one, threshold=0.3)
        for one in (model, Gated(model.classifier, model.discriminator, Gate(), 1.5).eval())
    )
    assert plain.predict(both).reason == gated.predict(both).reason
    assert plain.p_in_threshold == gated.p_in_threshold
    assert confidence_of(np.log(plain.p_in_threshold / (1 - plain.p_in_threshold)), 8) == pytest.approx(0.3)


def test_a_firm_gate_leaves_the_classifiers_labels(model, both):
    """Probabilities round to 1/K for all classes, and the label is still the classifier's."""
    gated = Gated(model.classifier, model.discriminator, Gate((0.0,), (-60.0,)), 1.5).eval()
    found = Detector(gated).predict(both)
    assert (found.confidence == 1 / 8).any()
    assert (found.label == model.predict(both).numpy()).all()


def test_scikit_learns_verdicts_are_the_gated_ones(gated, floats):
    sklearn = pytest.importorskip("prood.detector.sklearn")
    estimator = sklearn.OutlierDetector(Detector(gated), accept=0.9, level=0.8).fit(floats[200:500].numpy())
    shown = floats[500:800].numpy()
    found = estimator.detector_.predict(shown)
    assert (estimator.predict(shown) == np.where(found.accepted, 1, -1)).all()
    assert ((estimator.decision_function(shown) >= 0) == found.accepted).all()
    assert (estimator.score_samples(shown) == found.score).all()
    assert {"confidence", "discriminator"} <= set(found.reason)


def test_pytorch_oods_score_is_the_gated_one(gated, model, floats):
    score = OutlierScore(Detector(gated), accept=0.9, level=0.8)
    score.fit([(floats[200:500], torch.zeros(300))])
    shown = floats[500:600]
    found = score.detector.predict(shown)
    assert (score.predict(shown).numpy() == -found.score).all()
    assert (score.predict(shown) >= OutlierScore(Detector(model)).predict(shown)).all()
    assert (found.score < Detector(model).predict(shown).score).any()
    assert "discriminator" in found.reason
