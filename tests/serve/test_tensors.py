"""Binary tensors of the inference protocol, byte by byte; and by the clients that send them, where installed."""

import json
import math
import threading
import time
import tracemalloc

import numpy as np
import pytest

from prood.serve import About, Options
from prood.serve.server import bind, make_server

HEADER = "Inference-Header-Content-Length"
SIZES = {"INT64": "<i8", "FP64": "<f8", "BOOL": "?"}


def sent(array, kind="FP32", told=None, **more):
    """The body and the headers of a request with this tensor behind its JSON; `told` changes what is said about it."""
    raw = array.astype({"FP32": "<f4", "UINT8": "u1"}[kind]).tobytes()
    tensor = {"name": "images", "shape": list(array.shape), "datatype": kind}
    tensor |= {"parameters": {"binary_data_size": len(raw)}} | (told or {})
    head = json.dumps({"inputs": [tensor], **more}).encode()
    headers = {HEADER: str(len(head)), "content-type": "application/octet-stream"}
    return {"content": head + raw, "headers": headers}


def outputs(answered):
    """Every output as an array, whether it is JSON or bytes; no byte is left over."""
    assert answered.status_code == 200, answered.text
    length = int(answered.headers.get(HEADER, len(answered.content)))
    told, rest = json.loads(answered.content[:length]), answered.content[length:]
    found = {}
    for one in told["outputs"]:
        if "data" in one:
            found[one["name"]] = one["data"]
            continue
        size = one["parameters"]["binary_data_size"]
        part, rest = rest[:size], rest[size:]
        if one["datatype"] == "BYTES":
            texts = []
            while part:
                count = int.from_bytes(part[:4], "little")
                texts.append(part[4 : 4 + count].decode())
                part = part[4 + count :]
            found[one["name"]] = texts
        else:
            found[one["name"]] = np.frombuffer(part, SIZES[one["datatype"]]).reshape(one["shape"])
    assert rest == b""
    return found


@pytest.mark.parametrize("kind", ["FP32", "UINT8"])
def test_bytes_in_and_bytes_out_are_what_json_says(client, images, pictures, kind):
    array = images[:3].numpy() if kind == "FP32" else pictures[:3, None]
    path = "/v2/models/small/infer"
    as_json = {"name": "images", "shape": [3, 1, 28, 28], "datatype": kind, "data": array.reshape(-1).tolist()}
    more = {"parameters": {"eps": 0.02, "binary_data_output": True}}
    plain = outputs(client.post(path, json={"inputs": [as_json], "parameters": {"eps": 0.02}}))
    answered = client.post(path, **sent(array, kind, **more))
    assert answered.headers["content-type"] == "application/octet-stream"
    found = outputs(answered)
    assert list(found) == list(plain)
    assert {"label", "accepted", "reason", "upper_bound", "probabilities"} <= found.keys()
    assert found["reason"] == plain["reason"]
    for name in found.keys() - {"reason"}:
        np.testing.assert_allclose(np.ravel(found[name]), np.ravel(plain[name]), atol=1e-6)
    assert found["probabilities"].shape == (3, 8)


def test_each_output_is_sent_as_it_is_asked_for(client, images):
    asked = [{"name": "p_in"}, {"name": "label", "parameters": {"binary_data": True}}, {"name": "confidence"}]
    answered = client.post("/v2/models/small/infer", **sent(images[:2].numpy(), outputs=asked))
    told = json.loads(answered.content[: int(answered.headers[HEADER])])
    assert [(one["name"], "data" in one) for one in told["outputs"]] == [
        ("p_in", True), ("label", False), ("confidence", True)
    ]  # fmt: skip
    assert outputs(answered)["label"].dtype == np.int64
    without = {"outputs": [{"name": "p_in", "parameters": {"binary_data": False}}]}
    answered = client.post(
        "/v2/models/small/infer",
        **sent(images[:2].numpy(), parameters={"binary_data_output": True}, **without),
    )
    assert (answered.headers["content-type"], HEADER in answered.headers) == ("application/json", False)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"parameters": {"binary_data_size": 3135}}, "3136 bytes of FP32 must follow"),
        ({"parameters": {"binary_data_size": "3136"}}, "3136 bytes of FP32 must follow"),
        ({"parameters": {"binary_data_size": -1}}, "3136 bytes of FP32 must follow"),
        ({"parameters": {}}, "bytes follow the JSON that no input asks for"),
        ({"parameters": {}, "data": [0.5] * 784}, "bytes follow the JSON that no input asks for"),
        ({"data": [0.5] * 784}, "send one of them"),
        ({"parameters": 7}, "parameters is an object"),
        ({"datatype": "FP64"}, "the datatype is one of"),
        ({"datatype": "UINT8"}, "784 bytes of UINT8 must follow"),
        ({"shape": [2, 1, 28, 28]}, "6272 bytes of FP32 must follow"),
        ({"shape": [1, 1, 28, 10**30]}, "the shape is"),
    ],
)
def test_tensors_that_are_none(refused, client, images, told, said):
    refused(client.post("/v2/models/small/infer", **sent(images[:1].numpy(), told=told)), 400, said)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.5])
def test_pixels_out_of_range(refused, client, images, value):
    array = images[:1].numpy().copy()
    array[0, 0, 5, 5] = value
    refused(client.post("/v2/models/small/infer", **sent(array)), 400, "outside [0, 1]")


@pytest.mark.parametrize(
    ("length", "said"),
    [("-1", "whole number"), ("1e3", "whole number"), ("９", "whole number"), ("9" * 30, "whole number"),
     ("99999999", "the body has"), ("0", "not JSON"), ("20", "not JSON"), ("", "whole number")],
)  # fmt: skip
def test_lengths_that_are_none(refused, client, images, length, said):
    request = sent(images[:1].numpy())
    request["headers"][HEADER] = length.encode()
    refused(client.post("/v2/models/small/infer", **request), 400, said)


def test_bytes_cut_short_or_too_many(refused, client, images):
    request = sent(images[:1].numpy())
    for content in (request["content"][:-1], request["content"] + b"x"):
        refused(client.post("/v2/models/small/infer", **request | {"content": content}), 400, "must follow the JSON")


def test_the_limits_are_those_of_other_bodies(refused, service, images):
    path, array = "/v2/models/small/infer", images[:3].numpy()
    refused(service(images=2).post(path, **sent(array)), 413, "3 images are too many")
    refused(service(body_bytes=5000).post(path, **sent(array)), 413, "more than 5000 bytes")
    client = service(held_bytes=70_000)
    refused(client.post(path, **sent(images[:32].numpy())), 503, "too many large requests")
    assert client.service.intake.held.bytes == 0
    tracemalloc.start()
    try:
        refused(service().post(path, **sent(array, told={"shape": [10**9, 1, 28, 28]})), 413, "too many")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6


@pytest.fixture
def address(detector):
    listening = bind("127.0.0.1", 0)
    server = make_server(detector, Options(admin_token="admin"), About("small", 0.02))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


def test_tritonclient(address, detector, images):
    http = pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
    with http.InferenceServerClient(address) as client:
        assert client.is_server_ready()
        assert client.is_model_ready("small")
        tensor = http.InferInput("images", [3, 1, 28, 28], "FP32")
        tensor.set_data_from_numpy(images[:3].numpy())
        found = client.infer("small", [tensor], parameters={"eps": 0.02})
        expected = detector.predict(images[:3])
        np.testing.assert_allclose(found.as_numpy("confidence"), expected.confidence, atol=1e-6)
        np.testing.assert_array_equal(found.as_numpy("accepted"), expected.accepted)
        assert [text.decode() for text in found.as_numpy("reason")] == [one or "" for one in expected.reason]


def test_the_sdk_of_kserve(address, detector, images):
    kserve = pytest.importorskip("kserve", reason="pip install kserve")
    import asyncio

    tensor = kserve.InferInput("images", [3, 1, 28, 28], "FP32")
    tensor.set_data_from_numpy(images[:3].numpy(), binary_data=True)

    async def ask():
        client = kserve.InferenceRESTClient(kserve.inference_client.RESTConfig(protocol="v2"))
        request = kserve.InferRequest("small", [tensor], parameters={"binary_data_output": True})
        return await client.infer(f"http://{address}", request, model_name="small")

    found = {one.name: one.as_numpy() for one in asyncio.run(ask()).outputs}
    np.testing.assert_allclose(found["confidence"], detector.predict(images[:3]).confidence, atol=1e-6)
