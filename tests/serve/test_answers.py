"""What the service says is what the detector says, however the images come."""

import asyncio
import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from prood import data
from prood.detector import Detector
from prood.models import ProoD, discriminator, open_classifier
from prood.serve import About, create_app
from prood.serve.answer import last

CLOSE = 1e-6  # another batch rounds otherwise


def test_every_way_to_send_images_gives_the_detectors_answers(client, detector, files, images):
    texts = [base64.b64encode(file).decode() for file in files[:3]]
    ways = [
        {"files": [("image", (f"{place}.png", file, "image/png")) for place, file in enumerate(files[:3])]},
        {"json": {"images": texts}},
        {"json": {"images": [f"data:image/png;base64,{texts[0]}", texts[1], images[2].tolist()]}},
        {"json": {"images": images[:3].double().tolist()}},
    ]
    expected = detector.predict(images[:3])
    for way in ways:
        answered = client.post("/v1/predict", **way)
        assert answered.status_code == 200, answered.text
        found = answered.json()
        assert (found["model"], found["threshold"]) == ("small", detector.threshold)
        assert [one["label"] for one in found["predictions"]] == expected.label.tolist()
        for one, answer, probabilities in zip(found["predictions"], expected, expected.probabilities, strict=True):
            assert one["name"] == answer.name
            assert one["accepted"] == answer.accepted
            assert (
                abs(one["p_value"] - answer.p_value) < 0.01
            )  # a calibration image may tie with itself: one rank of 101
            assert one["confidence"] == pytest.approx(answer.confidence, abs=CLOSE)
            assert one["p_in"] == pytest.approx(answer.p_in, abs=CLOSE)
            assert one["probabilities"] == pytest.approx(probabilities.tolist(), abs=CLOSE)
            assert one["probabilities"][one["label"]] == one["confidence"]


@pytest.mark.parametrize("kind", ["png", "jpeg", "jpg", "webp", "bmp", "gif"])
def test_a_raw_picture_of_any_kind_is_fitted_as_the_detector_fits_it(client, detector, kind):
    colours = np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(colours).save(file, {"jpg": "jpeg"}.get(kind, kind))
    answered = client.picture("/v1/predict", file.getvalue(), f"image/{kind}")
    expected = detector.predict(Image.open(file))[0]
    (found,) = answered.json()["predictions"]
    assert found["label"] == expected.label
    assert found["confidence"] == pytest.approx(expected.confidence, abs=CLOSE)


@pytest.mark.slow
def test_certificates_are_the_detectors(client, detector, files, images):
    eps = [0.0005, 0.1, 0.01]
    order = detector.predict(images).p_in.argsort()
    chosen = [int(place) for place in (*order[:2], *order[-2:])]
    some, images = [base64.b64encode(files[place]).decode() for place in chosen], images[chosen]
    found = client.post("/v1/certify", json={"images": some, "eps": eps}).json()
    assert found["eps"] == eps
    assert (found["method"], found["norm"]) == ("best", "linf")
    proofs = [detector.certify(images, radius, radius=True) for radius in eps]
    radii = np.fmax.reduce([proof.radius for proof in proofs])
    rejected = 0
    for place, one in enumerate(found["certificates"]):
        for number, proof in enumerate(proofs):
            assert one["upper_bound"][number] == pytest.approx(proof.upper_bound[place], abs=CLOSE)
            assert one["rejected"][number] == proof.rejected[place]
        assert one["upper_bound"][0] <= one["upper_bound"][2] <= one["upper_bound"][1]
        assert one["confidence"] <= one["upper_bound"][0]
        if np.isnan(radii[place]):
            assert one["radius"] is None
        else:
            assert one["radius"] == pytest.approx(radii[place], abs=1e-5)
            rejected += 1
        assert one["accepted"] == detector.predict(images[place])[0].accepted
    assert 0 < rejected < 4  # both kinds are there


def test_without_the_search_the_radius_is_the_largest_of_those_asked_for(client, detector, files, images):
    place = int(detector.predict(images).p_in.argmin())
    eps = [0.0, 0.0005, 0.9]
    (one,) = client.picture("/v1/certify?eps=0,0.0005,0.9&radius=false", files[place]).json()["certificates"]
    sent = {"images": [base64.b64encode(files[place]).decode()], "eps": eps}
    (same,) = client.post("/v1/certify", json=sent | {"radius": False}).json()["certificates"]
    (searched,) = client.post("/v1/certify", json=sent | {"radius": True}).json()["certificates"]
    assert one == same
    assert one["rejected"] == [True, True, False]
    assert one["radius"] == 0.0005 < searched["radius"]


def test_radii_in_the_address_and_the_default_one(client, files):
    found = client.picture("/v1/certify?eps=0.01,8/255", files[0]).json()
    assert found["eps"] == [0.01, 8 / 255]
    assert client.picture("/v1/certify", files[0]).json()["eps"] == [0.02]


def test_a_curve_takes_over_what_is_proven_of_larger_balls():
    bounds = np.array([[0.3, 0.9, 0.2], [0.1, 0.2, 0.3]])
    np.testing.assert_array_equal(Detector.nested(bounds, [0.1, 0.3, 0.2]), [[0.2, 0.9, 0.2], [0.1, 0.2, 0.2]])


@pytest.mark.slow
def test_an_attack_stays_below_the_certificate_and_finds_something(client, detector, files, images):
    place = int(detector.predict(images).confidence.argmin())
    found = client.picture("/v1/attack?eps=0.1&steps=30", files[place]).json()
    trace = found["confidence"]
    assert trace == sorted(trace)
    assert 1 < len(trace) <= 31
    assert found["clean"] == trace[0] == pytest.approx(detector.predict(images[place])[0].confidence, abs=CLOSE)
    assert found["found"] == trace[-1] > trace[0] + 0.01
    assert found["found"] <= found["upper_bound"]
    assert found["upper_bound"] == pytest.approx(detector.certify(images[place], 0.1)[0].upper_bound, abs=CLOSE)
    assert found["accepted"] == (found["found"] >= detector.threshold)
    assert found["passes"] > len(trace)
    shown, seen = (unpacked(found[key]) for key in ("image", "original"))
    np.testing.assert_array_equal(seen, np.rint(images[place, 0].numpy() * 255))
    assert 0 < np.abs(shown - seen).max() <= 0.1 * 255 + 1


def unpacked(url):
    kind, _, text = url.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))).astype(float)


def test_an_attack_in_a_ball_without_room_finds_the_image_itself(client, files):
    found = client.picture("/v1/attack?eps=0&steps=3", files[0]).json()
    assert found["found"] == found["clean"] <= found["upper_bound"]
    assert found["image"] == found["original"]


@pytest.mark.slow
def test_more_attacks_than_allowed_are_told_to_come_again(service, files):
    client = service(attacks=1)
    send = {"content": files[0], "headers": {"content-type": "image/png"}}
    found = client.many([("POST", "/v1/attack?steps=60&eps=0.1", send)] * 4)
    assert sorted({answered.status_code for answered in found}) == [200, 503]
    assert all("Retry-After" in answered.headers for answered in found if answered.status_code == 503)
    assert client.picture("/v1/attack?steps=2", files[0]).status_code == 200


def test_an_attack_above_its_certificate_is_no_answer(client, files, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert client.picture("/v1/attack?eps=0.1&steps=5", files[0]).status_code == 200
    assert not list(tmp_path.iterdir())
    true = Detector.bound_of_g
    monkeypatch.setattr(Detector, "bound_of_g", lambda *given, **options: true(*given, **options) * 0 - 50)
    answered = client.picture("/v1/attack?eps=0.1&steps=5", files[0])
    assert answered.status_code == 500
    assert answered.json() == {"error": "the service failed: its log says why"}
    (kept,) = tmp_path.glob("prood-unsound-*.npz")
    with np.load(kept) as saved:
        assert saved["eps"] == 0.1
        assert np.abs(saved["worst"].astype(float) - saved["image"]).max() <= 0.1


def test_far_away_is_the_model_itself_without_clipping(client, detector, files, images):
    found = client.picture("/v1/far?factors=1,3,1000", files[5]).json()
    far = torch.stack([0.5 + factor * (images[5] - 0.5) for factor in (1, 3, 1000)])
    assert found["factors"] == [1, 3, 1000]
    assert found["confidence"] == pytest.approx(detector.model.confidence(far).tolist(), abs=CLOSE)
    assert found["p_in"] == pytest.approx(detector.model.in_logit(far).sigmoid().tolist(), abs=CLOSE)
    assert found["floor"] == 1 / 8
    assert client.picture("/v1/far", files[5]).json()["factors"] == [float(2**power) for power in range(11)]


def test_the_model_and_its_limits(service, detector):
    found = service(about=About("mine"), body_bytes=1000, attack_steps=7).get("/v1/model").json()
    assert found["name"] == "mine"
    assert found["classes"] == list("abcdefgh")
    assert found["image"] == [1, 28, 28]
    assert (found["shift"], found["eps"], found["floor"]) == (1.5, 0.01, 0.125)
    assert (found["threshold"], found["accept"], found["level"]) == (detector.threshold, 0.6, 0.9)
    assert (found["tpr"], found["confidence_level"]) == (0.6, 0.9)  # their names before
    assert found["ceiling"] == detector.model.ceiling(8)
    assert (found["limits"]["body_bytes"], found["limits"]["attack_steps"]) == (1000, 7)


def test_without_a_threshold_nothing_is_decided(service, detector, files):
    client = service(Detector(detector.model))
    model = client.get("/v1/model").json()
    assert (model["threshold"], model["accept"], model["level"]) == (None, None, None)
    (one,) = client.picture("/v1/predict", files[0]).json()["predictions"]
    assert (one["accepted"], one["p_value"], one["name"]) == (None, None, str(one["label"]))
    (one,) = client.picture("/v1/certify?eps=0.01,0.02", files[0]).json()["certificates"]
    assert (one["rejected"], one["radius"], one["accepted"]) == ([None, None], None, None)
    assert client.picture("/v1/attack?steps=2", files[0]).json()["accepted"] is None


@pytest.mark.slow
def test_requests_that_come_together_share_passes_and_keep_their_answers(service, detector, files, images):
    client = service(wait_ms=50)
    requests = [
        ("POST", "/v1/predict", {"content": file, "headers": {"content-type": "image/png"}}) for file in files[:40]
    ]
    requests += [
        ("POST", f"/v1/certify?eps=0,{0.001 * place}", {"content": file, "headers": {"content-type": "image/png"}})
        for place, file in enumerate(files[:10], 1)
    ]
    answers = client.many(requests)
    alone = [detector.predict(image)[0] for image in images[:40]]
    for answered, expected in zip(answers[:40], alone, strict=True):
        (found,) = answered.json()["predictions"]
        assert found["label"] == expected.label
        assert found["confidence"] == pytest.approx(expected.confidence, abs=CLOSE)
    for place, answered in enumerate(answers[40:], 1):
        (found,) = answered.json()["certificates"]
        wanted = detector.certify(images[place - 1], 0.001 * place)[0].upper_bound
        assert found["upper_bound"][1] == pytest.approx(wanted, abs=CLOSE)
        # In whatever batch an image comes, its certificate of radius 0 holds.
        assert answers[place - 1].json()["predictions"][0]["confidence"] <= found["upper_bound"][0]
    text = client.get("/metrics").text
    passes = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if not line.startswith("#")}
    assert passes['prood_batch_rows_sum{model="small",work="predict"}'] == 50
    assert passes['prood_batch_rows_count{model="small",work="predict"}'] < 20
    # The steps of ten searches for a radius are among them.
    rows, count = (passes[f'prood_batch_rows_{one}{{model="small",work="bound"}}'] for one in ("sum", "count"))
    assert rows > 2 * count


@pytest.mark.slow
def test_a_colour_model_is_served_too(service):
    torch.manual_seed(1)
    classifier = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 3))
    model = ProoD(classifier, discriminator("XS", image=(3, 32, 32)), 0.0)
    client = service(Detector(model, image=(3, 32, 32)))
    file = io.BytesIO()
    Image.fromarray(np.full((9, 9, 3), 200, np.uint8)).save(file, "PNG")
    assert client.picture("/v1/predict", file.getvalue()).status_code == 200
    url = client.picture("/v1/attack?steps=2&eps=0.01", file.getvalue()).json()["original"]
    assert unpacked(url).shape == (32, 32, 3)
    kinds = [(one["kind"], one["name"]) for one in client.get("/v1/examples").json()]
    assert kinds == [("out", "smooth"), ("out", "uniform")]


def test_examples_are_pictures_of_the_models_shape(service, detector):
    client = service(about=About("small", 0.02, "digits:train"))
    found = client.get("/v1/examples").json()
    kinds = [one["kind"] for one in found]
    assert kinds[:4] == ["in"] * 4
    assert {"smooth", "uniform", "photographs", "left-out"} <= {one["name"] for one in found if one["kind"] == "out"}
    for one in found:
        answered = client.get(one["url"])
        assert answered.headers["content-type"] == "image/png"
        assert Image.open(io.BytesIO(answered.content)).size == (28, 28)
    assert client.get(f"/v1/examples/{len(found)}.png").status_code == 404
    assert client.get("/v1/examples/x.png").status_code == 404


@pytest.mark.parametrize("name", ["npz:/etc/passwd:train", "folder:/:train", "no-such-set:train", "digits"])
def test_examples_open_no_path_that_a_models_file_names(service, name):
    client = service(about=About("small", None, name))
    assert {one["kind"] for one in client.get("/v1/examples").json()} == {"out"}


def test_not_even_one_that_can_be_read(service, pictures, tmp_path):
    with (tmp_path / "x.npz:test").open("wb") as file:
        np.savez(file, images=pictures[:9])
    assert data.load(f"npz:{tmp_path}/x.npz:test").shape == (1, 28, 28)  # so it is not for want of a file
    client = service(about=About("small", None, f"npz:{tmp_path}/x.npz:train"))
    assert {one["kind"] for one in client.get("/v1/examples").json()} == {"out"}


def test_an_attack_does_not_outlive_its_request(detector, images):
    """A server that has no more time cancels what is left; the attack must not hold up the end then."""
    service = create_app(detector).house.model(None).service

    async def main():
        work = asyncio.ensure_future(last(service.attack(images[0], 0.02, 5_000, "guarded")))
        while not service.attacks.running:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # it is running
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert not service.attacks.running
        assert service.attacks.pool.submit(lambda: "free").result(timeout=10) == "free"
        service.close()

    asyncio.run(main())


def test_a_classifier_without_gradients_is_not_attacked(service, detector, files, refused, tmp_path):
    from onnx import TensorProto, helper, numpy_helper, save

    weight = np.random.default_rng(0).normal(size=(784, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["images"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weight"], ["logits"]),
        ],
        "linear",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(weight, "weight")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "model.onnx")
    classifier, _ = open_classifier(tmp_path / "model.onnx", (1, 28, 28))
    client = service(Detector(ProoD(classifier, detector.model.discriminator, 1.0)))
    assert client.picture("/v1/certify?eps=0.01", files[0]).status_code == 200
    refused(client.picture("/v1/attack?eps=0.01&steps=5", files[0]), 400, "has no gradients: attack it by")
    assert client.picture("/v1/predict", files[0]).status_code == 200  # the attack has handed on its turn
