"""The v2 inference protocol, as a client that knows nothing else speaks it."""

import json

import numpy as np
import pytest

from prood.detector import Detector


def tensor(values, kind="FP32", shape=None):
    return {
        "name": "images",
        "shape": shape or list(values.shape),
        "datatype": kind,
        "data": values.reshape(-1).tolist(),
    }


def outputs(answered):
    assert answered.status_code == 200, answered.text
    found = {one["name"]: one for one in answered.json()["outputs"]}
    return {name: np.array(one["data"]).reshape(one["shape"]) for name, one in found.items()}


def test_what_there_is(client):
    assert client.get("/v2").json()["name"] == "prood"
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/small/ready").json() == {"name": "small", "ready": True}
    found = client.get("/v2/models/small").json()
    (version,) = found["versions"]
    assert client.get(f"/v2/models/small/versions/{version}").json() == found
    assert client.get(f"/v2/models/small/versions/{version}/ready").json()["ready"] is True
    assert client.get("/v2/models/small/versions/0").status_code == 404
    assert "binary_tensor_data" in client.get("/v2").json()["extensions"]
    assert found["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 1, 28, 28]}]
    assert [one["name"] for one in found["outputs"]] == [
        "label", "probabilities", "confidence", "p_in", "accepted", "reason", "upper_bound"
    ]  # fmt: skip
    for path in ("/v2/models/other", "/v2/models/other/ready"):
        assert client.get(path).status_code == 404
    assert (
        client.post("/v2/models/other/infer", json={}).json()["error"]
        == "there is no such model: this service has small"
    )


def test_inference_is_the_detectors(client, detector, images, pictures):
    expected = detector.predict(images[:3])
    body = {"id": "seven", "inputs": [tensor(images[:3].double().numpy())]}
    answered = client.post("/v2/models/small/infer", json=body)
    assert answered.json()["id"] == "seven"
    assert answered.json()["model_name"] == "small"
    assert answered.json()["model_version"] == client.get("/v1/model").json()["fingerprint"]
    kinds = {one["name"]: one["datatype"] for one in answered.json()["outputs"]}
    assert kinds == {
        "label": "INT64",
        "probabilities": "FP64",
        "confidence": "FP64",
        "p_in": "FP64",
        "accepted": "BOOL",
        "reason": "BYTES",
    }
    found = outputs(answered)
    np.testing.assert_array_equal(found["label"], expected.label)
    np.testing.assert_array_equal(found["accepted"], expected.accepted)
    assert found["reason"].tolist() == [reason or "" for reason in expected.reason]
    np.testing.assert_allclose(found["probabilities"], expected.probabilities, atol=1e-6)
    np.testing.assert_allclose(found["p_in"], expected.p_in, atol=1e-6)
    as_bytes = outputs(client.post("/v2/models/small/infer", json={"inputs": [tensor(pictures[:3, None], "UINT8")]}))
    np.testing.assert_allclose(as_bytes["confidence"], expected.confidence, atol=1e-6)
    nested = {"inputs": [tensor(images[:3].double().numpy()) | {"data": images[:3].tolist()}]}
    np.testing.assert_allclose(
        outputs(client.post("/v2/models/small/infer", json=nested))["confidence"], expected.confidence, atol=1e-6
    )


def test_a_radius_certifies(client, detector, images):
    given = tensor(images[:2].double().numpy())
    one = {"inputs": [given], "parameters": {"eps": 0.01}, "outputs": [{"name": "upper_bound"}]}
    found = outputs(client.post("/v2/models/small/infer", json=one))
    assert list(found) == ["upper_bound"]
    np.testing.assert_allclose(found["upper_bound"], detector.certify(images[:2], 0.01).upper_bound, atol=1e-6)
    many = {"inputs": [given], "parameters": {"eps": [0.01, 0.05]}}
    found = outputs(client.post("/v2/models/small/infer", json=many))["upper_bound"]
    assert found.shape == (2, 2)
    np.testing.assert_allclose(found[:, 1], detector.certify(images[:2], 0.05).upper_bound, atol=1e-6)


def test_without_a_threshold_there_is_no_verdict(service, detector, images):
    client = service(Detector(detector.model))
    found = outputs(client.post("/v2/models/small/infer", json={"inputs": [tensor(images[:1].double().numpy())]}))
    assert not {"accepted", "reason"} & set(found)
    named = {one["name"] for one in client.get("/v2/models/small").json()["outputs"]}
    assert not {"accepted", "reason"} & named


GOOD = {"name": "images", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.5] * 784}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "image"}, "one input, named images"),
        ({"datatype": "FP64"}, "the datatype is one of FP32, UINT8"),
        ({"datatype": ["FP32"]}, "the datatype is one of FP32, UINT8"),
        ({"shape": [1, 784]}, "the shape is [N, 1, 28, 28]"),
        ({"shape": [1, 1, 28, 28.0]}, "the shape is [N, 1, 28, 28]"),
        ({"shape": [True, 1, 28, 28]}, "the shape is [N, 1, 28, 28]"),
        ({"shape": [0, 1, 28, 28], "data": []}, "N is 1 or more"),
        ({"shape": [-1, 1, 28, 28]}, "N is 1 or more"),
        ({"shape": [1, 3, 28, 28]}, "the shape is [N, 1, 28, 28]"),
        ({"shape": [2, 1, 28, 28]}, "a list of 1568 numbers"),
        ({"data": None}, "or as bytes with the header"),
        ({"data": [[0.5] * 28] * 27 + [[0.5]]}, "flat or nested by the shape"),
        ({"data": [[0.5] * 392] * 2}, "flat or nested by the shape"),
        ({"data": ["0.5"] * 784}, "a list of 784 numbers"),
        ({"data": [1.5] * 784}, "outside [0, 1]"),
        ({"datatype": "UINT8"}, "numbers of the datatype UINT8"),
        ({"datatype": "UINT8", "data": [256] * 784}, "between 0 and 255"),
        ({"datatype": "UINT8", "data": [-1] * 784}, "between 0 and 255"),
    ],
)
def test_inputs_that_are_none(client, change, said):
    answered = client.post("/v2/models/small/infer", json={"inputs": [GOOD | change]})
    assert answered.status_code == 400, answered.text
    assert said in answered.json()["error"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "send exactly one input"),
        ({"inputs": [GOOD, GOOD]}, "send exactly one input"),
        ({"inputs": GOOD}, "send exactly one input"),
        ({"inputs": [GOOD], "parameters": []}, "parameters is an object"),
        ({"inputs": [GOOD], "parameters": {"eps": 2}}, "between 0 and 1"),
        ({"inputs": [GOOD], "outputs": [{"name": "energy"}]}, "there is no output 'energy'"),
        ({"inputs": [GOOD], "outputs": [{"name": "upper_bound"}]}, "there is no output 'upper_bound'"),
        ({"inputs": [GOOD], "outputs": ["confidence"]}, "a list of objects with a name"),
        ({"inputs": [GOOD], "outputs": [{"name": "p_in", "parameters": {"binary_data": 1}}]}, "true or false"),
        ({"inputs": [GOOD], "outputs": [{"name": "p_in", "parameters": []}]}, "parameters is an object"),
        ({"inputs": [GOOD], "parameters": {"binary_data_output": "yes"}}, "true or false"),
        (
            {"inputs": [GOOD | {"parameters": {"binary_data_size": 3136}}]},
            "lacks the header Inference-Header-Content-Length",
        ),
    ],
)
def test_requests_that_are_none(client, body, said):
    answered = client.post("/v2/models/small/infer", json=body)
    assert answered.status_code == 400, answered.text
    assert said in answered.json()["error"]


def test_limits(service):
    client = service(images=2)
    many = GOOD | {"shape": [3, 1, 28, 28], "data": [0.5] * 3 * 784}
    assert client.post("/v2/models/small/infer", json={"inputs": [many]}).status_code == 413
    for kind in ("image/png", "application/octet-stream"):
        answered = client.post("/v2/models/small/infer", content=b"x", headers={"content-type": kind})
        assert answered.status_code == 415
    repeated = client.post("/v2/models/small/infer", json={"inputs": [GOOD], "outputs": [{"name": "p_in"}] * 9})
    assert [one["name"] for one in repeated.json()["outputs"]] == ["p_in"]


def test_half_of_a_surrogate_pair_comes_back(client):
    """It is JSON, and has no UTF-8."""
    for text in ("\ud800", "a\udfffb", "\ud83d\ude00 ×"):
        body = json.dumps({"id": text, "inputs": [GOOD]})
        headers = {"content-type": "application/json"}
        answered = client.post("/v2/models/small/infer", content=body, headers=headers)
        assert answered.status_code == 200, answered.text
        assert answered.json()["id"] == json.loads(json.dumps(text))
        body = json.dumps({"inputs": [GOOD], "outputs": [{"name": text}]})
        assert client.post("/v2/models/small/infer", content=body, headers=headers).status_code == 400
        assert client.post("/v1/predict", content=json.dumps({text: 1}), headers=headers).status_code == 400
        assert client.post("/v1/predict", content=json.dumps({"images": [text]}), headers=headers).status_code == 400
