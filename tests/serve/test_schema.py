"""The interface as /openapi.json describes it, and requests made up from that description."""

import re
import threading
import time

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from prood.serve import About, Options
from prood.serve.server import bind, make_server

CHECKS = [not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance]
EXAMPLES = 12  # of each of the operations; benchmarks are for more


@pytest.fixture(scope="module")
def described(detector):
    listening = bind("127.0.0.1", 0)
    server = make_server(detector, Options(attack_steps=3, images=4), About("prood", 0.02))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield schemathesis.openapi.from_url(f"http://127.0.0.1:{listening.getsockname()[1]}/openapi.json")
    server.should_exit = True
    thread.join(30)


def test_every_address_is_described_with_its_answers(client):
    document = client.get("/openapi.json").json()
    paths = document["paths"]
    assert {f"/v1/{name}" for name in ("model", "predict", "certify", "attack", "far", "examples")} <= paths.keys()
    assert {"/v2", "/v2/models/{name}", "/v2/models/{name}/infer", "/healthz", "/metrics"} <= paths.keys()
    for path, operations in paths.items():
        for method, operation in operations.items():
            answers = operation["responses"]
            assert "422" not in answers, path
            if method == "post" and not path.startswith("/v2/repository"):
                assert {"200", "400", "401", "403", "408", "413", "415", "429", "503"} <= answers.keys()
                content = operation["requestBody"]["content"]
                assert "application/json" in content
                if path.startswith("/v1"):
                    assert {"image/png", "image/jpeg", "multipart/form-data"} <= content.keys()


@pytest.mark.slow
def test_limits_are_described_as_they_are(service):
    document = service(attack_steps=7, images=3, radii=5).get("/openapi.json").json()
    bodies = {
        name: document["paths"][f"/v1/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"][
            "properties"
        ]
        for name in ("predict", "attack", "far")
    }
    assert bodies["predict"]["images"]["maxItems"] == 3
    assert bodies["attack"]["images"]["maxItems"] == 1
    assert bodies["attack"]["steps"]["maximum"] == 7
    assert bodies["far"]["factors"]["maxItems"] == 5


@pytest.mark.slow
def test_the_example_of_a_request_works(client):
    document = client.get("/openapi.json").json()
    for path in ("/v1/predict", "/v1/certify", "/v1/attack", "/v1/far"):
        operation = document["paths"][path]["post"]
        example = operation["requestBody"]["content"]["application/json"]["example"]
        query = {one["name"]: one["example"] for one in operation["parameters"]}
        assert client.post(path, json=example, params=query).status_code == 200, path


def test_the_page_of_the_interface_is_made_from_it_and_needs_nothing_else(client):
    text = client.get("/docs").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in text
    assert "<script" not in text
    assert not re.findall(r'(?:src|href)="(?!/)', text)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(20))
def test_made_up_requests_get_answers_as_described(described, place):
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) == 20  # one test each

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operations[place].as_strategy())
    def check(case):
        case.call_and_validate(checks=CHECKS)

    check()
