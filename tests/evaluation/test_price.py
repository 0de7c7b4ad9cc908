"""The price of proof of gated models and committees: from real evaluations, at every acceptance and at a threshold."""

import numpy as np
import pytest
import torch

from prood import evaluate
from prood.attacks import APGD, PGD, Ensemble
from prood.data import ImageSet, uniform_noise
from prood.detector import Detector
from prood.evaluation import fpr, rejected
from prood.evaluation.metrics import ACCEPT
from prood.evaluation.price import at_shares, at_threshold, priced
from prood.models import Gated, discriminator, save, score_of
from prood.models.committee import committee_of

EPS, ATTACK = 0.01, Ensemble((PGD(steps=10, uniform=1, gaussian=0), APGD(iterations=5, restarts=1)))

DARK = ImageSet("dark", uniform_noise(16, (1, 28, 28), seed=2).images // 3)


@pytest.fixture(scope="module")
def detectors(parts):
    """A gated model, and one whose g is a committee, each calibrated on noise."""
    f, g = parts
    torch.manual_seed(4)
    other, images = discriminator("digits-S", image=(1, 28, 28)).eval(), uniform_noise(400, (1, 28, 28), seed=5)
    with torch.no_grad():
        other.last.log_weight.sub_(1.0)
        seen = [one.covered(images.floats()).double().numpy() for one in (g, other)]
    found = []
    for one in (g, committee_of([g, other], seen, (0.6, 0.4)).eval()):
        found.append(Detector(f, one, shift=1.5))
        found[-1].calibrate(images.floats(), accept=0.8, provable=0.6)
        assert isinstance(found[-1].model, Gated)
    return found


@pytest.fixture(scope="module")
def evaluations(detectors):
    """By the number of the detector."""
    inside = uniform_noise(60, (1, 28, 28), seed=1)
    outside = {"dark": DARK, "noise": uniform_noise(16, (1, 28, 28), seed=3)}
    asked = {"inside": inside, "outside": outside, "eps": [EPS, 2 * EPS], "attacks": ATTACK}
    return [evaluate(one.model, **asked) for one in detectors]


@pytest.mark.parametrize("which", [0, 1])
def test_clean_attacked_certified_and_the_line_of_proofs(evaluations, which):
    """Without tolerance; and what is proved is 1 − GFPR at every acceptance."""
    for one in evaluations[which]:
        scores = one.scores
        assert (scores.clean <= scores.attacked).all()
        assert (scores.attacked <= scores.certified).all()
        assert (scores.clean < scores.attacked).any()
        lines = rejected(
            scores.inside, {"proved": scores.certified, "attacked": scores.attacked, "clean": scores.clean}
        )
        assert lines["proved"].tolist() == [1 - fpr(scores.inside, scores.certified, share) for share in ACCEPT]
        assert (np.diff(list(lines.values()), axis=0) >= 0).all()
        assert one.gauc <= one.aauc <= one.auc
    assert any(one.gauc > 0 for one in evaluations[which])


@pytest.mark.parametrize("which", [0, 1])
def test_points_are_means_over_sets(evaluations, which):
    found = evaluations[which]
    for eps in (EPS, 2 * EPS):
        group = [one for one in found if one.eps == eps]
        for point in (one for one in at_shares(found, ACCEPT) if one.eps == eps):
            gfpr = np.mean([fpr(one.scores.inside, one.scores.certified, point.accepted) for one in group])
            clean = np.mean([fpr(one.scores.inside, one.scores.clean, point.accepted) for one in group])
            assert (point.proved, point.rejected) == (pytest.approx(1 - gfpr), pytest.approx(1 - clean))
            attacked = np.mean([fpr(one.scores.inside, one.scores.attacked, point.accepted) for one in group])
            assert point.attacked == pytest.approx(1 - attacked)
            assert point.proved <= point.attacked <= point.rejected
            assert point.sets == 2


@pytest.mark.parametrize("which", [0, 1])
def test_at_its_threshold_a_price_is_what_the_detector_decides(detectors, evaluations, which):
    detector = detectors[which]
    points = at_threshold(evaluations[which], detector.threshold)
    assert [one.eps for one in points] == [EPS, 2 * EPS]
    dark, noise = DARK.images, uniform_noise(16, (1, 28, 28), seed=3).images
    for point in points:
        proofs = [detector.upper_bound(some.float() / 255, point.eps) < detector.threshold for some in (dark, noise)]
        verdicts = [~detector.predict(some).accepted for some in (dark, noise)]
        assert point.rejected == pytest.approx(np.mean(verdicts))
        assert point.proved == pytest.approx(np.mean(proofs))
        assert point.proved <= point.attacked <= point.rejected
    inside = detector.predict(uniform_noise(60, (1, 28, 28), seed=1).images).accepted.mean()
    assert points[0].accepted == pytest.approx(inside)


def test_a_gate_that_came_later_has_no_price(detectors, tmp_path):
    detector = detectors[0]
    inside, outside = uniform_noise(60, (1, 28, 28), seed=1), {"noise": uniform_noise(9, (1, 28, 28), seed=3)}
    save(detector.model, tmp_path / "model.safetensors", threshold=detector.threshold)
    assert priced(tmp_path) == ()
    evaluate(detector.model, inside=inside, outside=outside, eps=EPS, attacks=None, folder=tmp_path)
    assert [one.outside for one in priced(tmp_path)] == ["noise"]
    again = Detector(detector.model)
    again.calibrate(uniform_noise(400, (1, 28, 28), seed=6).floats(), provable=0.2)
    save(again.model, tmp_path / "model.safetensors")
    assert priced(tmp_path) == ()
    (tmp_path / "model.safetensors").unlink()
    assert priced(tmp_path) == priced("cifar10") == ()


def test_the_most_images_count_and_an_attack_only_where_it_saw_them_all(detectors, tmp_path):
    inside, noise = uniform_noise(60, (1, 28, 28), seed=1), uniform_noise(9, (1, 28, 28), seed=3)
    save(detectors[0].model, tmp_path / "model.safetensors")
    asked = {"inside": inside, "outside": {"noise": noise}, "eps": EPS, "folder": tmp_path}
    evaluate(detectors[0].model, **asked, attacks=None)
    evaluate(detectors[0].model, **asked, attacks=ATTACK, limit=3)
    assert [(one.images, one.attacks) for one in priced(tmp_path)] == [(9, None)]
    assert {one.attacked for one in at_shares(priced(tmp_path))} == {None}
    evaluate(detectors[0].model, **asked, attacks=ATTACK)
    assert None not in {one.attacked for one in at_shares(priced(tmp_path))}


def test_an_evaluation_whose_scores_are_damaged_is_left_out(detectors, tmp_path):
    inside, outside = uniform_noise(60, (1, 28, 28), seed=1), {"noise": uniform_noise(9, (1, 28, 28), seed=3)}
    save(detectors[0].model, tmp_path / "model.safetensors")
    evaluate(detectors[0].model, inside=inside, outside=outside, eps=[EPS, 0.02], attacks=None, folder=tmp_path)
    damaged = next((tmp_path / "scores").iterdir())
    damaged.write_bytes(b"no archive")
    assert len(priced(tmp_path)) == 1


def test_attacks_on_a_calibrated_committee_stop_at_its_bound(detectors):
    """Also where the search aims at the bound itself, and where it stops for nothing."""
    images = uniform_noise(8, (1, 28, 28), seed=9).floats() / 2
    score = score_of(detectors[1].model)
    with torch.no_grad():
        bound = score.upper_bound(images, EPS)
    for goal in (None, bound, float("inf")):
        assert (ATTACK(score, images, EPS, goal=goal).scores <= bound).all()
