"""Several models in one process: by name, loaded again and unloaded while requests run, and watched one by one."""

import asyncio
import json
import threading
import time

import pytest
import torch

from prood.detector import Detector
from prood.errors import BadValue, Busy, Mismatch, NotFound
from prood.serve import About, Options
from prood.serve.app import Application

from .conftest import NAMES, Client, joint

ADMIN = {"authorization": "Bearer admin"}


def calibrated(images, seed, accept=0.6):
    """Another model for each seed."""
    model = joint()
    with torch.no_grad():
        model.classifier[-1].bias.add_(seed)
        model.classifier[-1].weight.mul_(1 + seed / 10)
    found = Detector(model, classes=NAMES)
    found.calibrate(images, accept=accept, level=0.9)
    return found


@pytest.fixture
def house(images):
    """`house()` serves the models a and b, which are read again from `sources`."""
    clients, sources = [], {name: calibrated(images, seed) for seed, name in enumerate("ab")}

    def start(**options):
        app = Application(Options(**({"admin_token": "admin"} | options)))
        for name in "ab":
            app.house.sources[name] = lambda name=name: (sources[name], About(name, 0.02))
            app.house.add(*app.house.sources[name]())
        clients.append(Client(app))
        clients[-1].sources = sources
        return clients[-1]

    yield start
    for client in clients:
        client.close()


def post(client, path, file):
    return client.post(path, content=file, headers={"content-type": "image/png"})


def test_each_is_reached_by_its_name(house, files, images):
    client = house()
    for name, path in (("a", "/v1/predict"), ("a", "/models/a/v1/predict"), ("b", "/models/b/v1/predict")):
        found = post(client, path, files[0]).json()
        expected = client.sources[name].predict(images[0])[0]
        assert (found["model"], found["threshold"]) == (name, client.sources[name].threshold)
        assert found["predictions"][0]["confidence"] == pytest.approx(expected.confidence, abs=1e-6)
    prints = [client.get(f"/models/{name}/v1/model").json()["fingerprint"] for name in "ab"]
    assert prints[0] != prints[1]
    assert [client.get(f"/v2/models/{name}").json()["versions"] for name in "ab"] == [[one] for one in prints]
    tensor = {"name": "images", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [0.5] * 784}
    answered = client.post("/v2/models/b/infer", json={"inputs": [tensor]}).json()
    assert (answered["model_name"], answered["model_version"]) == ("b", prints[1])
    said = client.get("/models/c/v1/model")
    assert (said.status_code, said.json()["error"]) == (404, "there is no such model: this service has a, b")
    assert client.get("/v2/models/b/nothing").status_code == 404


def test_the_guard_stands_before_all_of_them(refused, house, files):
    client = house(token="secret", admin_token=None)
    for path in ("/models/b/v1/predict", "/v1/predict", "/v2/models/b/infer", "/models/c/v1/predict"):
        refused(post(client, path, files[0]), 401, "token")
    headers = {"authorization": "Bearer secret"}
    assert client.get("/models/b/v1/model", headers=headers).status_code == 200
    assert client.post("/v2/repository/index", headers=headers).status_code == 200
    refused(client.post("/v2/repository/models/b/load", headers=headers), 403, "admin token")


def test_only_the_admin_token_loads_and_unloads(refused, house):
    client = house(token="secret")
    for action in ("load", "unload"):
        for headers in ({}, {"authorization": "Bearer secret"}, {"authorization": "Bearer other"}):
            status = 403 if "Bearer secret" in headers.values() else 401
            assert client.post(f"/v2/repository/models/b/{action}", headers=headers).status_code == status
    assert client.post("/v2/repository/models/b/load", headers=ADMIN).status_code == 200
    refused(client.post("/v2/repository/models/c/load", headers=ADMIN), 404, "no such model")


def test_the_index_of_the_repository(house, refused):
    client = house()
    found = client.post("/v2/repository/index").json()
    assert [(one["name"], one["state"]) for one in found] == [("a", "READY"), ("b", "READY")]
    assert client.post("/v2/repository/models/b/unload", headers=ADMIN).json() == {"name": "b"}
    assert [one["state"] for one in client.post("/v2/repository/index").json()] == ["READY", "UNAVAILABLE"]
    assert client.get("/v2/models/b/ready").status_code == 404
    refused(client.post("/v2/repository/models/a/unload", headers=ADMIN), 400, "the only model")
    assert client.post("/v2/repository/models/b/load", headers=ADMIN).status_code == 200
    assert client.get("/v2/models/b/ready").json() == {"name": "b", "ready": True}


def test_what_cannot_be_loaded_leaves_the_old_one(refused, house):
    client = house()

    def damaged():
        raise NotFound("there is no model at runs/b")

    before = client.get("/v2/models/b").json()
    client.app.house.sources["b"] = damaged
    answered = client.post("/v2/repository/models/b/load", headers=ADMIN)
    refused(answered, 400, "b was not loaded, and what was served stays: there is no model at runs/b")
    assert client.get("/v2/models/b").json() == before


@pytest.mark.slow
def test_a_model_is_replaced_under_load_and_no_request_is_dropped(house, files, images):
    """Every answer is of one version, whole: its confidence is what that version says."""
    client = house(wait_ms=1.0)
    versions = {0: client.sources["b"], 1: calibrated(images, 7)}
    expected = {}
    done, found = threading.Event(), []

    async def asking(path):
        while not done.is_set():
            answered = await client.http.post(path, content=files[3], headers={"content-type": "image/png"})
            found.append((answered.status_code, answered.json()))

    async def main():
        paths = ["/models/b/v1/predict"] * 6 + ["/models/b/v1/certify?eps=0.01,0.02"] * 2
        await asyncio.gather(*map(asking, paths))

    running = asyncio.run_coroutine_threadsafe(main(), client.loop)
    for turn in range(4):
        client.sources["b"] = versions[turn % 2]
        answered = client.post("/v2/repository/models/b/load", headers=ADMIN)
        assert answered.status_code == 200, answered.text
        expected[answered.json()["version"]] = versions[turn % 2].predict(images[3])[0].confidence
        time.sleep(0.1)
    done.set()
    running.result(60)
    assert {status for status, _ in found} == {200}
    assert len(expected) == 2
    seen = set()
    for _, told in found:
        (one,) = told.get("predictions") or told["certificates"]
        assert one["confidence"] == pytest.approx(expected[told["fingerprint"]], abs=1e-6)
        seen.add(told["fingerprint"])
    assert seen == set(expected)
    threads = [one.name for one in threading.enumerate() if one.name == "prood-model"]
    assert len(threads) <= 3  # of a, of b, and of one that is about to end


def test_models_share_the_limits(refused, house, files):
    """One budget of memory, and one of seconds, however many models there are."""
    client = house(held_bytes=100_000)
    a, b = (client.app.house.model(name).service for name in "ab")
    assert a.intake.held is b.intake.held
    assert a.turns is b.turns
    b.batcher._lanes["predict"].cost.add(1, 0.5)  # it takes half a second
    with a.batcher.promise("predict", 1):
        a.turns.promised["predict"] += 59.8
        refused(post(client, "/models/b/v1/predict", files[0]), 503, "too many requests are waiting")
        a.turns.promised["predict"] -= 59.8
    assert post(client, "/models/b/v1/predict", files[0]).status_code == 200


@pytest.mark.slow
def test_arrivals_are_watched_model_by_model(house, files, images, tmp_path):
    client = house(monitor=tmp_path)
    for file in files[3::5]:
        post(client, "/models/b/v1/predict", file)
    post(client, "/v1/certify?eps=0.01&radius=false", files[0])
    seen = [client.get(f"/models/{name}/v1/monitor").json()["monitor"]["seen"] for name in "ab"]
    assert seen == [1, 20]
    for _ in range(40):
        post(client, "/models/b/v1/predict", files[0])
    told = client.get("/models/b/v1/monitor").json()
    assert told["model"] == "b"
    assert told["monitor"]["alarm"] is True
    assert told["monitor"]["shift_at"] > 20
    assert 'prood_monitor_alarm{model="b"} 1.0' in client.get("/metrics").text
    client.app.house.watch.save()
    assert json.loads((tmp_path / "b.json").read_text())["seen"] == 60
    # The same model again goes on; one with another calibration begins anew.
    client.post("/v2/repository/models/b/load", headers=ADMIN)
    assert client.get("/models/b/v1/monitor").json()["monitor"]["seen"] == 60
    client.sources["b"] = calibrated(images[:80], 3)
    client.post("/v2/repository/models/b/load", headers=ADMIN)
    assert client.get("/models/b/v1/monitor").json()["monitor"] == told["monitor"] | {
        "seen": 0, "accepted": 0, "alarm": False, "shift": 0, "promise": 0, "calibration": 80, "shift_at": None,
        "promise_at": None,
    }  # fmt: skip


def test_a_monitor_goes_on_after_a_restart(detector, files, tmp_path):
    def served():
        app = Application(Options(monitor=tmp_path))
        app.house.add(detector, About("small"))
        return Client(app)

    client = served()
    post(client, "/v1/predict", files[0])
    with pytest.raises(Busy, match="another service"):
        served()
    asyncio.run_coroutine_threadsafe(client.app.house.stop(), client.loop).result(20)
    client.close()
    client = served()
    assert client.get("/v1/monitor").json()["monitor"]["seen"] == 1
    asyncio.run_coroutine_threadsafe(client.app.house.stop(), client.loop).result(20)
    client.close()
    (tmp_path / "small.json").write_text('{"format": 1}')
    with pytest.raises(BadValue, match="no calibration"):
        Application(Options(monitor=tmp_path)).house.add(Detector(detector.model, threshold=0.5), About("other"))


def test_what_is_asked_again_is_no_new_arrival(service, files, refused):
    """Beside a request that is watched, in the same pass, too."""
    client = service(wait_ms=50.0)
    again = ("predict?watch=false", "certify?eps=0.01&watch=false")
    assert [client.picture(f"/v1/{path}", files[0]).status_code for path in again] == [200, 200]
    monitor = client.service.monitor
    assert monitor.seen == 0
    sent = [{"content": file, "headers": {"content-type": "image/png"}} for file in files[:8]]
    paths = ["/v1/predict", "/v1/predict?watch=false"] * 4
    answers = client.many([("POST", path, one) for path, one in zip(paths, sent, strict=True)])
    assert {one.status_code for one in answers} == {200}
    assert monitor.seen == 4
    refused(client.picture("/v1/predict?watch=never", files[0]), 400, "watch is true or false")


def test_without_a_calibration_there_is_no_monitor(service, detector, files):
    client = service(Detector(detector.model, threshold=0.5))
    post(client, "/v1/predict", files[0])
    assert client.get("/v1/monitor").json() == {"model": "small", "monitor": None}


def test_a_state_of_another_calibration_is_refused_at_the_start(images, tmp_path):
    for place, seed in enumerate((1, 2)):
        house = Application(Options(monitor=tmp_path)).house
        if place:
            with pytest.raises(Mismatch, match="another calibration"):
                house.add(calibrated(images[: 90 + seed], seed), About("a"))
        else:
            house.add(calibrated(images, seed), About("a"))
            house.watch.save()
        asyncio.run(house.watch.stop())


@pytest.mark.slow
def test_loading_goes_on_where_its_client_is_gone(house, images):
    client = house(deadline_s=0.2)
    other = calibrated(images, 5)

    def slowly():
        time.sleep(1.0)
        return other, About("b", 0.02)

    client.app.house.sources["b"] = slowly
    answered = client.post("/v2/repository/models/b/load", headers=ADMIN)
    assert (answered.status_code, "longer than 0.2 seconds" in answered.text) == (503, True)
    for _ in range(200):
        if client.app.house.model("b").service.detector is other:
            break
        time.sleep(0.05)
    assert client.app.house.model("b").service.detector is other
    assert client.get("/v2/models/b/ready").status_code == 200


def test_a_disk_that_fails_ends_neither_a_model_nor_its_monitor(house, files, images, tmp_path, caplog):
    """A model leaves whole, and one that is read again and cannot be is refused with a line."""
    client = house(monitor=tmp_path)
    post(client, "/models/b/v1/predict", files[0])
    (tmp_path / "b.json").mkdir()  # as no file can take its place
    client.sources["b"] = Detector(client.sources["b"].model, threshold=0.5)  # it has no calibration any more
    answered = client.post("/v2/repository/models/b/load", headers=ADMIN)
    assert answered.status_code == 200, answered.text
    assert client.get("/models/b/v1/monitor").json()["monitor"] is None
    client.sources["b"] = calibrated(images, 1)
    assert client.post("/v2/repository/models/b/load", headers=ADMIN).status_code == 200
    service = client.app.house.model("b").service
    assert client.post("/v2/repository/models/b/unload", headers=ADMIN).status_code == 200
    assert "cannot be written" in caplog.text
    assert service.batcher.close(20)  # its thread is told to end, too

    def unreadable():
        raise PermissionError(13, "Permission denied", "runs/a/model.safetensors")

    client.app.house.sources["a"] = unreadable
    answered = client.post("/v2/repository/models/a/load", headers=ADMIN)
    assert (answered.status_code, "Permission denied" in answered.text) == (400, True)
