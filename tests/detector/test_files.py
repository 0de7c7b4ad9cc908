"""A detector that was saved decides as before."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import prood
from prood.detector import Detector
from prood.errors import AlreadyThere, BadValue, Damaged, Mismatch, NotFound, ProodError, Unsupported
from prood.models import read_metadata, save


def test_a_detector_that_was_saved_is_the_same(model, digits, tmp_path):
    detector = Detector(model, classes=tuple("abcdefgh"))
    with pytest.raises(BadValue, match=r"eps=0\.01"):
        detector.certify(digits[:2])
    detector.eps = 0.02
    found = detector.calibrate(digits[:100], accept=0.9)
    detector.save(tmp_path / "saved")
    again = Detector.load(tmp_path / "saved")
    assert again.calibration is not None
    assert (again.calibration.scores == found.scores).all()
    for name in ("threshold", "score", "index", "accept", "level"):
        assert getattr(again.calibration, name) == getattr(found, name)
    assert (again.threshold, again.classes) == (found.threshold, detector.classes)
    assert again.certify(digits[:2]).eps == again.eps == 0.02
    before, after = detector.predict(digits[100:200]), again.predict(digits[100:200])
    for name in ("label", "confidence", "p_in", "accepted", "p_value"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name
    # `prood certify --model saved` rejects by the same threshold.
    assert prood.load(str(tmp_path / "saved")).threshold == found.threshold


def test_files_with_the_words_of_before_are_read(model, digits, tmp_path):
    detector = Detector(model)
    found = detector.calibrate(digits[:100], accept=0.9, level=0.8)
    detector.save(tmp_path / "saved")
    file = tmp_path / "saved" / "calibration.json"
    facts = json.loads(file.read_text())
    facts |= {"tpr": facts.pop("accept"), "confidence": facts.pop("level")}
    file.write_text(json.dumps(facts))
    path = tmp_path / "saved" / "model.safetensors"
    with safe_open(path, "pt") as opened:
        about = opened.metadata()["prood"]
    assert '"accept": 0.9' in about
    about = re.sub(r', "sha256": "[0-9a-f]{64}"', "", about)  # nor had they a checksum
    save_file(load_file(path), path, {"prood": about.replace('"accept": 0.9', '"tpr": 0.9')})
    again = Detector.load(tmp_path / "saved")
    assert again.calibration is not None
    assert (again.calibration.accept, again.calibration.level, again.accept) == (0.9, 0.8, 0.9)
    assert (again.calibration.tpr, again.calibration.confidence, again.tpr) == (0.9, 0.8, 0.9)
    assert again.threshold == found.threshold
    assert read_metadata(path).accept == read_metadata(path).tpr == 0.9


def test_the_share_that_g_may_spend_is_kept(model, digits, tmp_path):
    detector = Detector(model)
    assert detector.provable == 0.0  # no gate
    detector.calibrate(digits[:300], accept=0.8, provable=0.4)
    detector.calibrate(digits[300:400], accept=0.7)  # the gate stays
    assert detector.provable == 0.4
    detector.save(tmp_path / "saved")
    again = Detector.load(tmp_path / "saved")
    assert (again.provable, again.accept) == (0.4, 0.7)
    again.threshold = 0.5
    assert (again.provable, again.accept) == (0.4, None)
    save(detector.model, tmp_path / "bare" / "model.safetensors")
    assert Detector.load(tmp_path / "bare").provable is None  # nobody said
    detector.calibrate(digits[:300], accept=0.8, provable=0)
    assert detector.provable == 0.0


def test_without_a_calibration_there_is_only_the_model(model, tmp_path):
    Detector(model, threshold=0.25).save(tmp_path / "saved")
    again = Detector.load(tmp_path / "saved")
    assert (again.threshold, again.calibration) == (0.25, None)
    save(model, tmp_path / "run" / "model.safetensors")
    assert Detector.load(str(tmp_path / "run")).threshold is None
    assert Detector.load(tmp_path / "run" / "model.safetensors").threshold is None


def test_nothing_is_written_over(detector, tmp_path):
    save(detector.model, tmp_path / "run" / "model.safetensors", seed=3)
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    with pytest.raises(AlreadyThere):
        detector.save(tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    (tmp_path / "file").touch()
    with pytest.raises(AlreadyThere):
        detector.save(tmp_path / "file")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weights": "0" * 16}, "other weights"),
        ({"scores": [1.0, 0.5]}, "not a calibration"),
        ({"scores": "many"}, "cannot read"),
        ({"index": 0}, "not a calibration"),
        ({"score": 0.1}, "not a calibration"),
        ({"threshold": 2.0}, "a threshold is a confidence"),
        ({"threshold": None}, "not a calibration"),
    ],
)
def test_a_calibration_that_does_not_belong_there_is_refused(detector, digits, tmp_path, change, said):
    detector.calibrate(digits[:60])
    detector.save(tmp_path)
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ProodError, match=said):
        Detector.load(tmp_path)
    file.write_text("{")
    with pytest.raises(Damaged):
        Detector.load(tmp_path)


def test_scores_out_of_order_are_refused(detector, digits, tmp_path):
    detector.calibrate(digits[:60])
    detector.save(tmp_path)
    file = tmp_path / "calibration.json"
    facts = json.loads(file.read_text())
    facts["scores"][-2:] = facts["scores"][:-3:-1]
    file.write_text(json.dumps(facts))
    with pytest.raises(Damaged):
        Detector.load(tmp_path)


def test_weights_that_were_trained_on_are_refused(detector, digits, tmp_path):
    detector.calibrate(digits[:60])
    detector.save(tmp_path)
    with torch.no_grad():
        detector.model.shift.add_(1)
    save(detector.model, tmp_path / "model.safetensors")
    with pytest.raises(Mismatch):
        Detector.load(tmp_path)


def test_there_must_be_a_joint_model(model, tmp_path):
    with pytest.raises(NotFound):
        Detector.load(tmp_path / "nothing")
    save(model.classifier, tmp_path / "plain.safetensors")
    with pytest.raises(Unsupported):
        Detector.load(tmp_path / "plain.safetensors")


def test_a_bare_discriminator_is_a_detector_too(model, digits, tmp_path):
    bare = Detector(model.discriminator)
    found = bare.calibrate(digits[:100])
    bare.save(tmp_path / "bare")
    again = Detector.load(tmp_path / "bare")
    assert (again.threshold, again.accept, again.classes, again.count) == (found.threshold, 0.95, (), 0)
    before, after = bare.predict(digits[100:150]), again.predict(digits[100:150])
    for name in ("label", "confidence", "p_in", "accepted", "p_value"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name
    with pytest.raises(Unsupported):
        again.joint()
