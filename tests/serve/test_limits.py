"""What the service refuses of a request: with which status, in one line, and without telling a path."""

import asyncio
import base64
import io
import json
import tracemalloc
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

IMAGE = {"content-type": "image/png"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "the body is empty"),
        ("{", "not JSON"),
        ("[]", "not an object"),
        ("\xff", "not JSON"),
        ('{"images": NaN}', "NaN is not a JSON number"),
        ("[" * 1_500, "nested too deeply"),
        ("{}", "no images"),
        ('{"images": []}', "no images"),
        ('{"images": "abc"}', "no images"),
        ('{"images": [1]}', "image 0 is neither base64"),
        ('{"images": ["äöü"]}', "image 0 is not base64"),
        ('{"images": ["a"]}', "image 0 is not base64"),
        ('{"images": ["data:image/png,abc"]}', "not a base64 data URL"),
        ('{"images": [[]]}', "of shape [1, 28, 28]"),
        ('{"images": [[[1, 2], [3]]]}', "of shape [1, 28, 28]"),
        (json.dumps({"images": [np.full((1, 28, 28), 2.0).tolist()]}), "outside [0, 1]: divide bytes by 255"),
        (json.dumps({"images": [np.full((1, 28, 28), "0.5").tolist()]}), "a list of numbers"),
        (json.dumps({"images": [np.full((28, 28, 1), 0.5).tolist()]}), "of shape [1, 28, 28]"),
        (json.dumps({"images": [np.full((1, 28, 28), 0.5).tolist()], "esp": 1}), "unknown key 'esp'"),
        (json.dumps({"images": [np.full((1, 28, 28), 0.5).tolist()]}).replace("0.5", "1e999", 1), "outside [0, 1]"),
        (json.dumps({"images": [np.full((1, 28, 28), 0.5).tolist()]}).replace("0.5", "null", 1), "a list of numbers"),
        (json.dumps({"images": [np.full((1, 28, 28), 0.5).tolist()]}).replace("0.5", "[0.5]", 1), "a list of numbers"),
    ],
)
def test_json_that_is_none(refused, client, body, said):
    headers = {"content-type": "application/json; charset=utf-8"}
    refused(client.post("/v1/predict", content=body.encode(), headers=headers), 400, said)


def test_json_in_another_encoding(refused, client):
    answered = client.post("/v1/predict", content=b'{"a": "\xff"}', headers={"content-type": "application/json"})
    refused(answered, 400, "not UTF-8")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/predict?eps=0.1", "unknown option 'eps' in the address: there is only watch"),
        ("/v1/certify?esp=0.1", "unknown option 'esp' in the address: there is only eps, radius"),
        ("/v1/certify?eps=0.1&eps=0.2", "eps occurs twice in the address"),
        ("/v1/certify?eps=0.1&radius=no", "radius is true or false"),
        ("/v1/certify?eps=wide", "eps must be a number, not 'wide'"),
        ("/v1/certify?eps=", "eps must be a number, not ''"),
        ("/v1/certify?eps=1/0", "eps must be a number, not '1/0'"),
        ("/v1/certify?eps=nan", "eps must be a number, not 'nan'"),
        ("/v1/certify?eps=-0.1", "eps must lie between 0 and 1, and -0.1 does not"),
        ("/v1/certify?eps=1.01", "eps must lie between 0 and 1, and 1.01 does not"),
        ("/v1/certify?eps=" + ",".join(["0.1"] * 34), "eps is 33 numbers at most, not 34"),
        ("/v1/attack?eps=0.1,0.2", "takes one radius"),
        ("/v1/attack?steps=0", "steps is a whole number from 1 to 200"),
        ("/v1/attack?steps=201", "steps is a whole number from 1 to 200"),
        ("/v1/attack?steps=1.5", "steps is a whole number"),
        ("/v1/attack?steps=1,2", "steps is one number"),
        ("/v1/far?factors=-1", "factors must lie between 0 and 1,000,000"),
        ("/v1/far?factors=1e7", "factors must lie between 0 and 1,000,000"),
        ("/v1/far?factors=" + ",".join(["1"] * 34), "factors is 33 numbers at most"),
    ],
)
def test_options_out_of_range(refused, client, files, path, said):
    refused(client.picture(path, files[0]), 400, said)


def test_options_of_json(refused, client, files):
    text = base64.b64encode(files[0]).decode()
    refused(client.post("/v1/certify?eps=0.1", json={"images": [text], "eps": 0.2}), 400, "give it once")
    for wrong in ([True], {}, None, [[0.1]], [], "x" * 50):
        answered = client.post("/v1/certify", json={"images": [text], "eps": wrong})
        assert answered.status_code == (200 if wrong is None else 400), answered.text
    refused(client.post("/v1/attack", json={"images": [text, text]}), 400, "2 images were sent: send one")


def form(*parts, edge=b"edge", end=b"--edge--\r\n"):
    body = b"".join(b"--" + edge + b"\r\n" + head + b"\r\n\r\n" + content + b"\r\n" for head, content in parts) + end
    return {"content": body, "headers": {"content-type": "multipart/form-data; boundary=edge"}}


NAMED = b'Content-Disposition: form-data; name="image"; filename="a.png"'


def test_forms(refused, service, files):
    client = service(images=2)
    post = lambda **given: client.post("/v1/predict", **given)  # noqa: E731
    assert len(post(**form((NAMED, files[0]), (NAMED, files[1]))).json()["predictions"]) == 2
    refused(post(**form(*[(NAMED, files[0])] * 3)), 413, "more images than the 2")
    other = b'Content-Disposition: form-data; name="photo"; filename="a.png"'
    refused(post(**form((other, files[0]))), 400, "send every picture as image")
    refused(post(**form((b"Content-Type: image/png", files[0]))), 400, "send every picture as image")
    refused(post(**form((NAMED, files[0]), end=b"")), 400, "cut short")
    refused(post(**form()), 400, "no image")
    refused(post(**form((NAMED, b""))), 400, "image 0 is not a readable picture")
    refused(post(**form((NAMED, files[0]), edge=b"other")), 400, "damaged")
    refused(post(content=b"x", headers={"content-type": "multipart/form-data"}), 400, "no boundary")


def test_too_many_images(refused, service, files):
    client = service(images=2)
    text = base64.b64encode(files[0]).decode()
    refused(client.post("/v1/predict", json={"images": [text] * 3}), 413, "3 images are too many: 2 are allowed")
    assert client.post("/v1/predict", json={"images": [text] * 2}).status_code == 200


def test_bodies_that_are_too_long(refused, service, files):
    client = service(body_bytes=len(files[0]))
    assert client.picture("/v1/predict", files[0]).status_code == 200
    refused(client.picture("/v1/predict", files[0] + b"x"), 413, f"more than {len(files[0])} bytes")

    async def chunks():
        for _ in range(100):
            yield b"x" * 100
        raise AssertionError("the whole body was read")

    refused(client.post("/v1/predict", content=chunks(), headers=IMAGE), 413, "bytes")
    refused(client.post("/v2/models/small/infer", content=b"x" * 5000), 413, "bytes")


def test_a_body_that_does_not_come(refused, service, files):
    async def slow():
        yield files[0][:50]
        await asyncio.sleep(30)
        yield files[0][50:]

    client = service(body_s=0.2)
    refused(client.post("/v1/predict", content=slow(), headers=IMAGE), 408, "within 0.2 seconds")


@pytest.mark.parametrize("kind", ["text/plain", "image/tiff", "application/x-www-form-urlencoded", ""])
def test_other_types_of_content(refused, client, files, kind):
    refused(client.picture("/v1/predict", files[0], kind), 415, "image/png")


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1", "/v1/nothing", "/v1/examples/../../etc/passwd", "/..%2f..%2fetc/passwd"]
)
def test_there_is_nothing_else(refused, client, path):
    refused(client.get(path), 404, "there is nothing")


def test_the_wrong_method(refused, client):
    answered = refused(client.get("/v1/predict"), 405, "another method")
    assert answered.headers["allow"] == "POST"
    refused(client.post("/v1/model"), 405, "another method")


PIXELS = [[[0.5] * 28] * 28]


def test_json_with_more_values_than_images_have_is_not_even_read(refused, client):
    """Python reads JSON in one go: 8 MB of empty lists would hold up everybody for two seconds."""
    for body in ("[" * 100_000, '{"images": [' + "[]," * 100_000 + "[]]}", '{"images": [' + "0," * 100_000 + "0]}"):
        headers = {"content-type": "application/json"}
        refused(client.post("/v1/predict", content=body, headers=headers), 413, "more values or lists")
        refused(client.post("/v2/models/small/infer", content=body, headers=headers), 413, "more values or lists")


def test_text_among_pixels_never_reaches_numpy(refused, client):
    """It would make every entry as wide as the longest text: gigabytes."""
    text = "x" * 1_000_000
    image = [[[*[0.5] * 27, text], *[[0.5] * 28] * 27]]
    tensor = {"name": "images", "shape": [1, 1, 28, 28], "datatype": "FP32", "data": [text, *[0.5] * 783]}
    tracemalloc.start()
    try:
        refused(client.post("/v1/predict", json={"images": [image]}), 400, "a list of numbers")
        refused(client.post("/v2/models/small/infer", json={"inputs": [tensor]}), 400, "a list of 784 numbers")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.parametrize("wrong", [True, 10**400, None, "1"])
def test_only_numbers_are_pixels(refused, client, wrong):
    image = [[[*[0.5] * 27, wrong], *[[0.5] * 28] * 27]]
    refused(client.post("/v1/predict", json={"images": [image]}), 400, "a list of numbers")


@pytest.mark.parametrize("eps", ["１", "1_0", " 0.1", "0.1 ", "inf", "+-1", "0x1", "1e", ".", "0." + "0" * 50, "1//2"])
def test_numbers_are_plain_decimals(refused, client, files, eps):
    address = f"/v1/certify?radius=false&eps={quote(eps)}"
    refused(client.picture(address, files[0]), 400, "eps must be a number")
    refused(client.post("/v1/certify", json={"images": [PIXELS], "eps": eps}), 400, "eps must be a number")


@pytest.mark.parametrize("eps", ["0.1", ".5", "1.", "+0.25", "1e-3", "1E-3", "8/255"])
def test_these_are(client, files, eps):
    assert client.picture(f"/v1/certify?radius=false&eps={quote(eps)}", files[0]).status_code == 200


def test_bytes_in_flight_are_limited(refused, service, files):
    client = service(held_bytes=200_000)
    large = files[0] + bytes(150_000)  # a viewer ignores what stands behind a picture

    async def held(gate):
        yield large[:-1]
        await gate.wait()
        yield large[-1:]

    async def main():
        gate, http = asyncio.Event(), client.http
        first = asyncio.ensure_future(http.post("/v1/predict", content=held(gate), headers=IMAGE))
        while not client.service.intake.held.bytes:
            await asyncio.sleep(0.01)
        full = await http.post("/v1/predict", content=large, headers=IMAGE)
        small = await http.post("/v1/predict", content=files[0], headers=IMAGE)
        gate.set()
        return await first, full, small

    first, full, small = asyncio.run_coroutine_threadsafe(main(), client.loop).result(60)
    refused(full, 503, "too many large requests")
    assert (first.status_code, small.status_code) == (200, 200)
    assert client.service.intake.held.bytes == 0


def test_the_pictures_of_a_request_have_a_limit_together(refused, service):
    client = service(pixels=10_000)
    file = io.BytesIO()
    Image.new("L", (100, 100)).save(file, "PNG")
    text = base64.b64encode(file.getvalue()).decode()
    assert client.post("/v1/predict", json={"images": [text] * 4}).status_code == 200
    refused(client.post("/v1/predict", json={"images": [text] * 5}), 413, "more than 40000 pixels together")
