"""What /metrics says, read by the rules of the format."""

import re

from prood.serve.metrics import Counter, Histogram

LINE = re.compile(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)+\})? ([0-9.e+-]+)')


def read(text):
    """Every sample by name and labels; each of a metric that was announced with its type."""
    kinds, samples = {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            found = LINE.fullmatch(line)
            assert found, line
            name, labels, value = found.groups()
            assert re.sub("_(bucket|sum|count)$", "", name) in kinds
            assert name + (labels or "") not in samples
            samples[name + (labels or "")] = float(value)
    return kinds, samples


def test_requests_verdicts_and_passes_are_counted(client, detector, files, images):
    for file in files[:5]:
        assert client.picture("/v1/predict", file).status_code == 200
    client.picture("/v1/predict", b"x")
    client.picture("/v1/certify?eps=0.1,0.2", files[0])
    for path in ("/v1/nothing", "/v1/other", '/a"b', "/v1/examples/7777.png", "/v2/models/abc"):
        client.get(path)
    answered = client.get("/metrics")
    assert answered.headers["content-type"].startswith("text/plain; version=0.0.4")
    kinds, samples = read(answered.text)
    assert kinds["prood_requests_total"] == "counter"
    assert kinds["prood_request_seconds"] == "histogram"
    assert samples['prood_requests_total{path="/v1/predict",status="200"}'] == 5
    assert samples['prood_requests_total{path="/v1/predict",status="400"}'] == 1
    assert samples['prood_requests_total{path="other",status="404"}'] == 3
    assert samples['prood_requests_total{path="/v1/examples/{place}.png",status="404"}'] == 1
    assert samples['prood_requests_total{path="/v2/models/{name}",status="404"}'] == 1
    assert samples['prood_request_seconds_count{path="/v1/predict"}'] == 6
    assert samples['prood_request_seconds_bucket{path="/v1/predict",le="+Inf"}'] == 6
    assert 0 < samples['prood_request_seconds_sum{path="/v1/predict"}'] < 60
    accepted = int(detector.predict(images[:5]).accepted.sum() + detector.predict(images[:1]).accepted.sum())
    assert samples['prood_images_total{verdict="accepted"}'] == accepted
    assert samples['prood_images_total{verdict="rejected"}'] == 6 - accepted
    assert samples['prood_batch_rows_sum{work="bound"}'] >= 2 + 1  # one ball at least says that there is no radius
    assert samples["prood_queue_seconds"] == 0
    assert samples["prood_held_bytes"] == 0
    assert samples["prood_queue_rows"] == 0
    assert samples["prood_requests_in_flight"] == 1  # this one
    assert samples["prood_attacks"] == 0


def test_a_failure_is_counted(client, files, monkeypatch):
    def broken(*_):
        raise RuntimeError("a secret at 0x1234")

    monkeypatch.setattr(type(client.service.detector), "predict", broken)
    answered = client.picture("/v1/predict", files[0])
    assert answered.status_code == 500
    assert answered.json() == {"error": "the service failed: its log says why"}
    _, samples = read(client.get("/metrics").text)
    assert samples['prood_requests_total{path="/v1/predict",status="500"}'] == 1
    assert samples["prood_requests_in_flight"] == 1


def test_a_histogram_counts_up_to_each_edge():
    histogram = Histogram("h", "text", "key", (1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 7.0):
        histogram.observe('a"b', value)
    assert histogram.lines() == [
        'h_bucket{key="a\\"b",le="1"} 2',
        'h_bucket{key="a\\"b",le="2"} 4',
        'h_bucket{key="a\\"b",le="+Inf"} 5',
        'h_sum{key="a\\"b"} 12',
        'h_count{key="a\\"b"} 5',
    ]


def test_a_counter_adds():
    counter = Counter("c", "text", ("kind",))
    counter.add("a")
    counter.add("a", count=12345678.5)
    assert counter.lines() == ['c{kind="a"} 12345679.5']
