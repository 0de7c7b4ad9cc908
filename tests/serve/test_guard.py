"""Who may ask, by which name and how often; and what every answer carries."""

import pytest

from prood.errors import BadValue
from prood.serve.guard import BURST_S, CLIENTS, Rates, host_name
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


def test_while_it_drains_nothing_new_is_taken(refused, client, files):
    service = client.app.state.service
    assert client.get("/healthz").json() == {"status": "ok"}
    service.draining = True
    answered = refused(client.picture("/v1/predict", files[0]), 503, "shutting down")
    assert answered.headers["retry-after"] == "1"
    assert client.get("/healthz").status_code == 503
    assert client.get("/v2/health/ready").status_code == 503
    assert client.get("/v2/health/live").status_code == 200
    assert client.get("/v1/model").status_code == 200


def test_a_full_queue_says_so(refused, service, files):
    client = service(queue=1, batch=1)
    send = {"content": files[0], "headers": IMAGE}
    found = client.many([("POST", "/v1/predict", send)] * 30)
    statuses = [answered.status_code for answered in found]
    assert set(statuses) == {200, 503}
    for answered in found:
        if answered.status_code == 503:
            refused(answered, 503, "too many requests are waiting")
            assert answered.headers["retry-after"] == "1"


def test_more_requests_than_are_worked_on_at_once(service, files):
    client = service(requests=2, wait_ms=200)
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
