"""The shares at a model's own threshold are those of its detector."""

from dataclasses import replace

import numpy as np
import pytest

from prood.detector import Detector
from prood.evaluation import evaluate, evaluate_run, read_results
from prood.evaluation.verdicts import judged
from prood.evaluation.words import VERDICTS
from prood.models import ProoD, save, small


@pytest.mark.parametrize("joint", [True, False])
def test_they_are_the_detectors(f, g, inside, outside, joint):
    model = ProoD(f, g, 1.0) if joint else g
    detector = Detector(model)
    detector.threshold = float(np.median(detector.certify(outside["dark"], 0.02).upper_bound))
    options = {"inside": inside, "outside": {"dark": outside["dark"]}, "eps": 0.02, "threshold": detector.threshold}
    (one,) = evaluate(model, **options)
    assert one.threshold == detector.threshold
    assert one.accepted == detector.predict(inside).accepted.mean()
    assert one.passed == detector.predict(outside["dark"]).accepted.mean()
    assert one.proved == pytest.approx(
        detector.certify(outside["dark"], 0.02).rejected.mean(), abs=0.04
    )  # of 30 images
    assert 0 < one.proved < 1


def test_a_threshold_that_is_set_anew_changes_the_shares_and_nothing_else(f, g, inside, outside, tmp_path):
    np.savez(tmp_path / "in.npz", images=inside.images.squeeze(1).numpy())
    np.savez(tmp_path / "out.npz", images=outside["noise"].images.squeeze(1).numpy())
    names = {"inside": f"npz:{tmp_path}/in.npz", "outside": [f"npz:{tmp_path}/out.npz"], "attacks": None}
    found = []
    for threshold in (None, 0.3, 0.9):
        save(ProoD(f, g, 1.0), tmp_path / "run" / "model.safetensors", eps=0.05, threshold=threshold)
        (one,) = evaluate_run(tmp_path / "run", **names, device="cpu")
        assert list(read_results(tmp_path / "run")) == [one]
        found.append(one)
    assert [one.threshold for one in found] == [None, 0.3, 0.9]
    assert len({one.identity for one in found}) == 1
    assert len({(one.auc, one.gauc, one.seconds) for one in found}) == 1  # not evaluated again
    assert [getattr(found[0], name) for name in VERDICTS] == [None] * 4
    assert found[1].accepted >= found[2].accepted
    assert found[1].passed >= found[2].passed
    assert found[1].proved <= found[2].proved


def test_without_scores_or_a_threshold_there_are_no_shares(inside, outside):
    (one,) = evaluate(small(4, width=4), inside=inside, outside={"dark": outside["dark"]}, eps=0.01)
    assert [getattr(one, name) for name in VERDICTS] == [None] * 4
    stated = judged(one, 0.5, 4)
    assert stated.proved == 0  # there is no certificate
    lost = judged(replace(one, scores=None), 0.5, 4)
    assert (lost.threshold, lost.accepted) == (0.5, None)
