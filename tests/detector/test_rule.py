"""One function compares, one caps a confidence, one finds a threshold: every path says the same about one image."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import prood
from prood.certification.certify import Request, stated
from prood.certification.table import certify_images
from prood.detector import Detector, Rule, confidence_bound, confidence_of, threshold_at
from prood.detector.pytorch_ood import OutlierScore
from prood.errors import BadValue, Unsupported
from prood.evaluation import threshold
from prood.models import InLogit
from prood.models.confidence import logistic, score_below
from prood.models.score import JointConfidence

SOURCE = Path(prood.__file__).parent
EPS = (0.02, 0.1, 0.3)
CLOSE = 1e-12


@pytest.fixture
def picture(tmp_path, digits) -> Path:
    Image.fromarray(digits[0, 0].numpy()).save(tmp_path / "digit.png")
    return tmp_path / "digit.png"


def test_every_path_says_the_same_about_an_image(model, picture, tmp_path):
    detector = Detector(model)
    free = detector.certify(picture, EPS[1]).upper_bound[0]
    detector.threshold = float(free) + 1e-9  # proven at the second radius, perhaps not at the third
    answer, proof = detector.predict(picture)[0], detector.certify(picture, EPS[1])
    bounds = detector.upper_bounds(picture, EPS)[0]
    assert proof.rejected.all()
    assert bounds[1] == proof.upper_bound[0]
    rejected = [bool(bound < detector.threshold) for bound in bounds]

    # The model's own words, the score of attacks, and an adapter's.
    x = torch.tensor(np.asarray(Image.open(picture)))[None, None].float() / 255
    with torch.no_grad():
        assert model.confidence(x).item() == pytest.approx(answer.confidence, rel=CLOSE)
        score = detector.score(x).item()
    assert confidence_of(score, 8) == pytest.approx(answer.confidence, rel=CLOSE)
    assert OutlierScore(detector).predict(x).item() == -score
    for eps, bound in zip(EPS, bounds, strict=True):
        assert model.upper_bound(x, eps).item() == pytest.approx(bound, rel=CLOSE)
        assert confidence_bound(detector.score.upper_bound(x, eps).item(), 8) == pytest.approx(bound, rel=CLOSE)

    # Certificates, and the table of `prood certify`.
    detector.save(tmp_path / "saved")
    (row,) = certify_images(
        Detector.load(tmp_path / "saved"), tmp_path / "saved", [str(picture)], Request(EPS, radius=True)
    )
    assert row.answer == answer
    assert row.bounds == pytest.approx(list(bounds), rel=CLOSE)
    assert [one.confidence for one in row.certificates] == [stated(detector, one.bound) for one in row.certificates]
    assert row.rejected == "provably"
    assert row.radius >= max(eps for eps, proven in zip(EPS, rejected, strict=True) if proven)

    # The service.
    testclient = pytest.importorskip("fastapi.testclient", exc_type=(ImportError, DeprecationWarning))
    from prood.serve import create_app

    with testclient.TestClient(create_app(detector)) as client:
        said = client.post("/v1/certify", json={"images": [x[0].tolist()], "eps": list(EPS)}).json()
    (served,) = json.loads(json.dumps(said))["certificates"]
    assert served["confidence"] == pytest.approx(answer.confidence, rel=CLOSE)
    assert served["accepted"] == answer.accepted
    assert served["upper_bound"] == pytest.approx(list(bounds), rel=CLOSE)
    assert served["rejected"] == rejected
    assert served["radius"] == pytest.approx(row.radius, abs=1e-6)


@pytest.mark.slow
def test_the_exported_bound_is_the_same(model, digits, tmp_path):
    pytest.importorskip("onnxscript")
    from prood.export import export, open_session, run

    detector = Detector(model)
    export(detector, tmp_path / "m.onnx")
    images = digits[:2].float() / 255
    found = run(open_session(tmp_path / "m.onnx"), images, 0.1)
    np.testing.assert_allclose(found["upper_bound"], detector.certify(images, 0.1).upper_bound, atol=1e-6)
    np.testing.assert_allclose(found["confidence"], detector.predict(images).confidence, atol=1e-6)


def test_a_bare_discriminator_is_judged_by_g(model, digits):
    g, images = model.discriminator, digits[:6].float() / 255
    bare = Detector(g)
    found, proof = bare.predict(images), bare.certify(images, 0.05)
    with torch.no_grad():
        values = g.covered(images).double().numpy()
        bound = g.upper_bound(images, 0.05).double().numpy()
    assert (found.confidence == values).all()
    assert (found.score == values).all()
    assert (found.p_in == logistic(values)).all()
    assert (proof.upper_bound == bound).all()
    assert (bare.count, bare.classes, bare.shift, found[0].name, found[0].label) == (0, (), 0.0, "–", -1)
    assert found.probabilities.shape == (6, 0)
    assert isinstance(bare.score, InLogit)
    assert isinstance(Detector(model).score, JointConfidence)
    bare.threshold = float(np.sort(bound)[3])  # any finite number: it is no confidence
    assert (bare.certify(images, 0.05).rejected == (bound < bare.threshold)).all()
    assert not (bare.predict(images).accepted & bare.certify(images, 0.0).rejected).any()
    with pytest.raises(BadValue):
        bare.threshold = float("nan")
    with pytest.raises(Unsupported):
        bare.joint()


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_cap_is_the_same_of_numbers_arrays_and_tensors(classes):
    scores = np.array([-np.inf, -800.0, -40.0, -1e-3, 0.0, 2.5, 40.0, 800.0, np.inf])
    for cap in (confidence_of, confidence_bound):
        numbers = [cap(score, classes) for score in scores.tolist()]
        assert cap(scores, classes) == pytest.approx(numbers, rel=CLOSE)
        assert cap(torch.from_numpy(scores), classes).tolist() == pytest.approx(numbers, rel=CLOSE)
    bounds = confidence_bound(scores, classes)
    assert (bounds >= confidence_of(scores, classes)).all()
    assert bounds.max() == 1
    for level in (0.3, 0.5, 0.9, 0.9999):
        below = score_below(max(level, 1.01 / classes), classes)
        assert confidence_bound(below, classes) < max(level, 1.01 / classes)


def test_a_threshold_is_one_of_the_scores():
    scores = np.random.default_rng(0).normal(size=200)
    for share in (0.5, 0.8, 0.95, 1.0):
        found = threshold_at(scores, share)
        assert found == threshold(scores, share)  # that of the metrics
        assert (scores >= found).mean() >= share > (scores > found).mean()
    assert threshold_at(scores, 0.9, confidence=0.95) < threshold_at(scores, 0.9)  # the promise about new images costs


def test_how_far_a_proof_reaches():
    rule = Rule(10, 0.5)
    bounds = np.array([[0.4, 0.6], [0.4, 0.45], [0.6, 0.7], [0.4, 0.6]])
    reach = rule.reach(np.array([0.05, 0.3, np.nan, np.nan]), bounds, (0.1, 0.2))
    np.testing.assert_array_equal(reach, [0.1, 0.3, np.nan, 0.1])
    with pytest.raises(BadValue):
        Rule(10).rejects(0.1)


def test_a_value_meets_a_threshold_in_one_place():
    for room in ("detector", "certification", "serve", "export", "report", "cli"):
        for file in sorted((SOURCE / room).rglob("*.py")):
            if file.name != "rule.py":
                compared = [node for node in _nodes(file) if isinstance(node, ast.Compare)]
                assert not [one for one in compared if _orders(one) and "threshold" in map(_last, _sides(one))], file


def test_the_rooms_above_ask_the_detector_for_bounds():
    """The file in ONNX has bounds of its own, and so has the verifier."""
    lower = {"prood.bounds.upper_bound", "prood.bounds.certified_radius", "prood.models.ProoD", "prood.models.fuse"}
    for room in ("certification", "serve"):
        for file in sorted((SOURCE / room).rglob("*.py")):
            imports = [node for node in _nodes(file) if isinstance(node, ast.ImportFrom)]
            assert not lower & {f"{node.module}.{name.name}" for node in imports for name in node.names}, file


def _nodes(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def _orders(node: ast.Compare) -> bool:
    return all(isinstance(one, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for one in node.ops)


def _sides(node: ast.Compare) -> list[ast.expr]:
    return [node.left, *node.comparators]


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
