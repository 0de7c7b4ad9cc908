"""The service of a gated model: which gate rejects, both thresholds, and bounds that hold."""

import numpy as np
import pytest
import torch

from prood.detector import Detector
from prood.models import Gate, Gated
from prood.models.confidence import confidence_of
from prood.serve.options import About

CLOSE = 1e-6  # another batch rounds otherwise


@pytest.fixture(scope="module")
def detector(detector, images):
    """Of the images, g rejects some, the confidence others, and some are accepted."""
    model = detector.model
    with torch.no_grad():
        low, high = np.quantile(model.in_logit(images).double().numpy(), [0.3, 0.9])
    gate = Gate((float(low), float(high)), (float(low) - 1, float(high) - 0.5))
    gated = Gated(model.classifier, model.discriminator, gate, 1.5).eval()
    return Detector(gated, threshold=float(confidence_of(low - 1, 8)))


def test_every_answer_says_which_gate_rejects(client, detector, images):
    expected = detector.predict(images[:32])
    assert set(expected.reason) == {None, "confidence", "discriminator"}
    sent = {"images": images[:32].double().tolist()}
    found = client.post("/v1/predict", json=sent).json()["predictions"]
    assert [one["reason"] for one in found] == list(expected.reason)
    assert [one["confidence"] for one in found] == pytest.approx(expected.confidence.tolist(), abs=CLOSE)
    tensor = {"name": "images", "shape": [32, 1, 28, 28], "datatype": "FP32", "data": sent["images"]}
    outputs = client.post("/v2/models/small/infer", json={"inputs": [tensor]}).json()["outputs"]
    (reason,) = [one for one in outputs if one["name"] == "reason"]
    assert (reason["datatype"], reason["shape"]) == ("BYTES", [32])
    assert reason["data"] == [one or "" for one in expected.reason]


def test_the_model_says_at_which_point_it_decides(service, detector, images):
    calibrated = Detector(detector.model.__class__(*parts_of(detector)))
    calibrated.calibrate(images.repeat(8, 1, 1, 1) if len(images) < 250 else images, accept=0.6, provable=0.4)
    price = {"eps": 0.02, "accepted": 0.61, "rejected": 0.7, "proved": 0.2, "sets": 3, "attacked": 0.4}
    found = service(calibrated, About("small", 0.02, price=(price,))).get("/v1/model").json()
    assert (found["accept"], found["provable"], found["price"]) == (0.6, 0.4, [price])
    found = service(detector).get("/v1/model").json()
    assert (found["gated"], found["provable"], found["price"]) == (True, None, [])


def parts_of(detector):
    return detector.model.classifier, detector.model.discriminator


def test_a_certificate_is_that_of_the_gate(client, detector, images):
    eps, expected = [0.005, 0.05], detector.predict(images[:6])
    found = client.post("/v1/certify", json={"images": images[:6].double().tolist(), "eps": eps}).json()["certificates"]
    bounds = detector.upper_bounds(images[:6], eps)
    np.testing.assert_allclose([one["upper_bound"] for one in found], bounds, atol=CLOSE)
    assert [one["reason"] for one in found] == list(expected.reason)
    for one, bound in zip(found, bounds, strict=True):
        assert one["rejected"] == detector.rule.rejects(bound).tolist()
        if any(one["rejected"]) or one["radius"] is not None:
            assert one["reason"] == "discriminator"
    assert any(one["radius"] is not None for one in found)


def test_an_attack_stays_below_the_gated_bound(client, detector, files, images):
    place = detector.predict(images).reason.index("discriminator")
    found = client.picture("/v1/attack?eps=0.02&steps=5", files[place]).json()
    assert found["clean"] == pytest.approx(detector.predict(images[place : place + 1])[0].confidence, abs=CLOSE)
    assert found["clean"] <= found["found"] <= found["upper_bound"]
    assert found["upper_bound"] == pytest.approx(detector.upper_bounds(images[place : place + 1], [0.02])[0, 0])
    assert (found["reason"] is None) == found["accepted"]


def test_far_views_are_the_gated_model(client, detector, files, images):
    found = client.picture("/v1/far?factors=1,3,100", files[5]).json()
    far = torch.stack([0.5 + factor * (images[5] - 0.5) for factor in (1, 3, 100)])
    with torch.no_grad():
        assert found["confidence"] == pytest.approx(detector.model.confidence(far).tolist(), abs=CLOSE)


def test_the_description_names_both_thresholds(client, service, detector, images):
    about = client.get("/v1/model").json()
    assert about["gated"] is True
    assert about["threshold"] == detector.threshold
    found = detector.predict(images)
    by_g = np.array([reason == "discriminator" for reason in found.reason])
    assert found.p_in[by_g].max() <= about["p_in_threshold"] + CLOSE <= found.p_in[~by_g].min() + 2 * CLOSE
    assert found.p_in.max() <= about["p_in_ceiling"]
    plain = service(Detector(detector.model.classifier, detector.model.discriminator, shift=1.5))
    other = plain.get("/v1/model").json()
    assert (other["gated"], other["threshold"], other["p_in_threshold"]) == (False, None, None)
    assert other["p_in_ceiling"] == about["p_in_ceiling"]
    assert other["ceiling"] > about["ceiling"]
