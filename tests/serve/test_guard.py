"""Who may ask, by which name and how often; and what every answer carries."""

import json

import pytest

from prood.errors import BadValue
from prood.serve.guard import BURST_S, CLIENTS, Rates, host_name
from prood.serve.lines import Lines
from prood.serve.options import Options

IMAGE = {"content-type": "image/png"}


def test_a_token_is_asked_for(refused, service, files):
    client = service(token="secret-word")
    for path in ("/", "/docs", "/openapi.json", "/healthz", "/v2/health/live", "/v2/health/ready", "/style.css"):
        assert client.get(path).status_code == 200, path
    for path in (
        "/v1/model",
        "/v1/examples",
        "/v1/examples/0.png",
        "/metrics",
        "/v2",
        "/v2/models/small",
        "/v1/nothing",
    ):
        answered = refused(client.get(path), 401, "Bearer TOKEN")
        assert answered.headers["www-authenticate"] == "Bearer"
    for wrong in (
        "Bearer secret-wor",
        "Bearer secret-word1",
        "Basic secret-word",
        "secret-word",
        "Bearer ",
        "Bearer \xe4",
    ):
        headers = {"authorization": wrong.encode("latin-1")}
        refused(client.get("/v1/model", headers=headers), 401, "Bearer TOKEN")
    for right in ("Bearer secret-word", "bearer secret-word"):
        assert client.get("/v1/model", headers={"authorization": right}).status_code == 200
    refused(client.picture("/v1/predict", files[0]), 401, "token")


def test_the_name_of_the_host_is_checked(refused, service):
    client = service(hosts=("localhost", "127.0.0.1", "::1", "box.example"))
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]", "box.example:99"):
        assert client.get("/v1/model", headers={"host": host}).status_code == 200
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", "", "[::2]:8000"):
        refused(client.get("/v1/model", headers={"host": host}), 400, "host name")
    assert host_name("[::1]:8000") == "::1"


def test_pages_of_other_sites_may_not_post(refused, client, files):
    headers = IMAGE | {"sec-fetch-site": "cross-site"}
    refused(client.post("/v1/predict", content=files[0], headers=headers), 403, "another site")
    headers = IMAGE | {"sec-fetch-site": "same-origin", "origin": "http://localhost"}
    answered = client.post("/v1/predict", content=files[0], headers=headers)
    assert answered.status_code == 200
    assert not [name for name in answered.headers if name.startswith("access-control")]


def test_every_answer_has_the_headers_of_a_careful_page(client):
    for path in ("/", "/v1/model", "/docs", "/nothing", "/healthz"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert "http" not in client.get("/docs").text.replace("the HTTP interface", "")


def test_the_rate_of_one_client(refused, service):
    client = service(rate=0.1)
    assert client.get("/v1/model").status_code == 200
    answered = refused(client.get("/v1/model"), 429, "too many requests")
    assert answered.headers["retry-after"] == "1"
    assert client.get("/healthz").status_code == 200


def test_a_bucket_is_filled_again_and_others_have_their_own():
    now = [0.0]
    rates = Rates(2.0, lambda: now[0])
    assert [rates.allowed("a") for _ in range(21)] == [True] * int(2 * BURST_S) + [False]
    assert rates.allowed("b")
    now[0] = 0.6
    assert [rates.allowed("a"), rates.allowed("a")] == [True, False]
    now[0] = 1000.0
    assert sum(rates.allowed("a") for _ in range(100)) == int(2 * BURST_S)
    for number in range(2 * CLIENTS):
        rates.allowed(str(number))
    assert len(rates._buckets) == CLIENTS


def test_while_it_drains_it_is_not_ready_and_still_answers(client, files):
    """A balancer needs a moment to notice; and whoever is answered is told to come back by another connection."""
    house = client.app.house
    assert client.get("/healthz").json() == {"status": "ok"}
    assert "connection" not in client.get("/v1/model").headers
    house.draining = True
    answered = client.picture("/v1/predict", files[0])
    assert (answered.status_code, answered.headers["connection"]) == (200, "close")
    assert (client.get("/healthz").status_code, client.get("/healthz").json()) == (503, {"status": "draining"})
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/models/small/ready").status_code == 503
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/v1/model").status_code == 200


def test_readiness_notices_a_model_that_is_stuck(client, files, monkeypatch):
    monkeypatch.setattr(type(client.service.batcher), "stuck", True)
    assert client.get("/healthz").json() == {"status": "stuck"}
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/health/live").status_code == 200


def test_health_and_metrics_are_answered_by_any_name(refused, service):
    """A kubelet calls a container by its address."""
    client = service(hosts=("guard.example",), token="secret")
    for path in ("/healthz", "/v2/health/live", "/v2/health/ready"):
        assert client.get(path, headers={"host": "10.1.2.3:8000"}).status_code == 200
    refused(client.get("/metrics", headers={"host": "10.1.2.3:8000"}), 401, "token")
    headers = {"host": "10.1.2.3:8000", "authorization": "Bearer secret"}
    assert client.get("/metrics", headers=headers).status_code == 200
    refused(client.get("/v1/model", headers=headers), 400, "host name")


def test_a_request_has_a_deadline(refused, service, files, monkeypatch):
    client = service(deadline_s=1.5, wait_ms=10_000)
    assert client.picture("/v1/predict", files[0]).status_code == 200  # the first one shows what a pass costs
    refused(client.picture("/v1/predict", files[0]), 503, "longer than 1.5 seconds")
    assert client.service.batcher.waiting == 0


def test_every_answer_has_an_id(client):
    assert client.get("/v1/model", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    for odd in ("a b", "x" * 65, '"}{'):
        assert len(client.get("/v1/model", headers={"x-request-id": odd}).headers["x-request-id"]) == 32


def test_the_access_log_is_json(service, files, caplog):
    client = service(access_log=True)
    with caplog.at_level("INFO", "prood.access"):
        client.post("/v1/predict", content=files[0], headers=IMAGE | {"x-request-id": "one"})
        client.get('/a"b%0Ac')
    lines = [Lines().format(record) for record in caplog.records if record.name == "prood.access"]
    first, second = map(json.loads, lines)
    assert (first["id"], first["path"], first["status"], first["method"]) == ("one", "/v1/predict", 200, "POST")
    assert 0 < first["seconds"] < 60
    assert second["status"] == 404


def test_more_requests_than_are_worked_on_at_once(service, files):
    client = service(requests=2, wait_ms=1000)
    found = client.many([("POST", "/v1/predict", {"content": files[0], "headers": IMAGE})] * 5)
    assert sorted(answered.status_code for answered in found) == [200, 200, 503, 503, 503]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": 0},
        {"images": 0},
        {"wait_ms": -1},
        {"rate": float("nan")},
        {"token": ""},
        {"token": "a\nb"},
        {"token": "ä"},
    ],
)
def test_options_that_make_no_sense(wrong):
    with pytest.raises(BadValue, match=next(iter(wrong))):
        Options(**wrong)


def test_the_token_is_not_shown():
    assert "secret" not in repr(Options(token="secret"))
