"""What /metrics says, read by Prometheus' own parser, and the log as lines of JSON."""

import io
import json
import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from prood.detector import Detector
from prood.serve.lines import Lines, asking


def read(text):
    """Every sample by its name and the values of its labels, in the order of the labels' names."""
    samples, kinds = {}, {}
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in samples
            samples[key] = sample.value
    return kinds, samples


def test_requests_verdicts_and_passes_are_counted(client, detector, files, images):
    for file in files[:5]:
        assert client.picture("/v1/predict", file).status_code == 200
    client.picture("/v1/predict", b"x")
    certified = client.picture("/v1/certify?eps=0.1,0.2", files[0]).json()["certificates"][0]
    for path in ("/v1/nothing", "/v1/other", '/a"b', "/v1/examples/7777.png", "/v2/models/abc"):
        client.get(path)
    answered = client.get("/metrics")
    assert answered.headers["content-type"].startswith("text/plain; version=0.0.4")
    kinds, samples = read(answered.text)
    assert (kinds["prood_requests"], kinds["prood_request_seconds"]) == ("counter", "histogram")
    assert samples["prood_requests_total", "/v1/predict", "200"] == 5
    assert samples["prood_requests_total", "/v1/predict", "400"] == 1
    assert samples["prood_requests_total", "other", "404"] == 4  # of which one asks for a model that is not there
    assert samples["prood_requests_total", "/v1/examples/{place}.png", "404"] == 1
    assert samples["prood_request_seconds_count", "/v1/predict"] == 6
    assert samples["prood_request_seconds_bucket", "+Inf", "/v1/predict"] == 6
    assert 0 < samples["prood_request_seconds_sum", "/v1/predict"] < 60
    predicted = [detector.predict(images[:5]), detector.predict(images[:1])]
    accepted = sum(int(one.accepted.sum()) for one in predicted)
    assert samples["prood_images_total", "small", "accepted"] == accepted
    assert samples["prood_images_total", "small", "rejected"] == 6 - accepted
    assert samples["prood_p_in_count", "small"] == 6
    assert samples["prood_p_in_sum", "small"] == pytest.approx(sum(one.p_in.sum() for one in predicted), abs=1e-4)
    assert samples["prood_certified_total", "small", "rejected"] == sum(certified["rejected"])
    assert samples["prood_certified_total", "small", "open"] == 2 - sum(certified["rejected"])
    assert samples["prood_batch_rows_sum", "small", "bound"] >= 2 + 1  # one ball at least says that there is no radius
    assert samples["prood_stage_seconds_count", "receive"] == 6  # one of the seven was no picture
    assert samples["prood_stage_seconds_count", "wait"] >= 8
    assert samples["prood_stage_seconds_count", "compute"] >= 7
    for idle in (("prood_queue_seconds", "small"), ("prood_held_bytes",), ("prood_queue_rows", "small")):
        assert samples[idle] == 0
    assert samples["prood_requests_in_flight",] == 1  # this one
    assert (samples["prood_ready",], samples["prood_attacks", "small"]) == (1, 0)


def test_without_a_threshold_nothing_is_decided(service, detector, files):
    client = service(Detector(detector.model))
    client.picture("/v1/predict", files[0])
    client.picture("/v1/certify?eps=0.1", files[0])
    _, samples = read(client.get("/metrics").text)
    assert samples["prood_images_total", "small", "undecided"] == 2
    assert samples["prood_certified_total", "small", "open"] == 1
    assert not [key for key in samples if key[0].startswith("prood_monitor")]


def test_grey_images_that_warm_the_model_are_not_counted(service):
    client = service()
    client.warm()
    _, samples = read(client.get("/metrics").text)
    assert samples["prood_batch_rows_sum", "small", "predict"] == 4
    assert not [key for key in samples if key[0] == "prood_images_total"]
    assert samples["prood_monitor_images", "small"] == 0


def test_a_failure_is_counted(client, files, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a secret at 0x1234")

    monkeypatch.setattr(type(client.service.detector), "predict", broken)
    answered = client.picture("/v1/predict", files[0])
    assert answered.status_code == 500
    assert answered.json() == {"error": "the service failed: its log says why"}
    assert answered.headers["x-request-id"]
    _, samples = read(client.get("/metrics").text)
    assert samples["prood_requests_total", "/v1/predict", "500"] == 1
    assert samples["prood_requests_in_flight",] == 1


def test_a_log_line_is_json_with_the_id_of_its_request():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines())
    log = logging.Logger("test")
    log.addHandler(handler)
    log.info("first\nsecond")
    token = asking.set("seven")
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        log.exception("it %s", "failed", extra={"said": {"status": 500}})
    asking.reset(token)
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["message"], "id" in first) == ("info", "first\nsecond", False)
    assert (second["id"], second["message"], second["status"], second["level"]) == ("seven", "it failed", 500, "error")
    assert "ZeroDivisionError" in second["traceback"]
