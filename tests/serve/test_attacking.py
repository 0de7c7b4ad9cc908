"""Attacks as they are told, on the guarded model and on its classifier alone; and what comes with a model."""

import asyncio
import json
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from prood import data
from prood.errors import Damaged, ProodError
from prood.models import MODEL_FILE, save
from prood.models.confidence import confidence_of
from prood.models.joint import confidence_logit
from prood.serve import About, Options, create_app
from prood.serve.answer import last
from prood.serve.gallery import LIST, Gallery, Picture, gallery_of
from prood.serve.server import loaded


def lines(answered):
    assert answered.status_code == 200, answered.text
    assert answered.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answered.text.splitlines()]


@pytest.mark.parametrize("on", ["guarded", "classifier"])
def test_a_stream_tells_each_step_and_ends_with_the_answer(client, detector, files, images, on):
    path = f"/v1/attack?eps=0.1&steps=8&on={on}"
    first, bound, *steps, answer = lines(client.picture(f"{path}&stream=true", files[3]))
    assert first == {"steps": 8}
    assert bound == {"upper_bound": answer["upper_bound"]}
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert [step["confidence"] for step in steps] == answer["confidence"]
    assert steps[-1]["name"] == answer["name"]
    assert answer == client.picture(path, files[3]).json()
    if on == "guarded":
        assert answer["upper_bound"] == pytest.approx(detector.certify(images[3], 0.1)[0].upper_bound, abs=1e-9)
        return
    assert answer["upper_bound"] is None
    with torch.no_grad():
        alone = confidence_of(confidence_logit(detector.model.classifier(images[3:4])), 8)
    assert answer["clean"] == pytest.approx(alone.item(), abs=1e-6)
    assert answer["found"] > answer["clean"] + 0.01


def test_the_classifier_alone_accepts_as_large_a_share_as_the_model(service, detector, files):
    images = data.load("digits:validation", shape=(1, 28, 28))
    asked = "/v1/attack?eps=0.1&steps=2&on=classifier"
    found = service(about=About("small", 0.02, "digits:train")).picture(asked, files[0]).json()
    with torch.no_grad():
        values = confidence_of(confidence_logit(detector.model.classifier(images.images.float() / 255)), 8).numpy()
    assert np.mean(values >= found["threshold"]) == pytest.approx(detector.accept, abs=0.06)
    assert found["accepted"] == (found["found"] >= found["threshold"])
    unknown = service(about=About("small", 0.02)).picture(asked, files[0]).json()
    assert (unknown["threshold"], unknown["accepted"], unknown["reason"]) == (None, None, None)
    told = service(about=About("small", 0.02, gallery=Gallery(classifier_threshold=0.99999))).picture(asked, files[0])
    assert (told.json()["threshold"], told.json()["accepted"]) == (0.99999, False)


def test_an_attack_ends_with_what_it_has_before_the_deadline(detector, images):
    service = create_app(detector, Options(deadline_s=1.0, attack_steps=10**6), About()).house.model(None).service
    found = asyncio.run(last(service.attack(images[0], 0.02, 10**6, "guarded")))
    assert found["ended"] == "time"
    assert 1 < len(found["confidence"]) < 10**6
    assert found["found"] <= found["upper_bound"]
    assert service.close(20)


def test_what_fails_on_the_way_is_the_last_line(client, files, monkeypatch):
    def fails(*_, **__):
        raise ProodError("this classifier has no gradients")

    monkeypatch.setattr("prood.serve.attacking.Traced.__call__", fails)
    *_, told = lines(client.picture("/v1/attack?eps=0.1&stream=true", files[0]))
    assert told == {"error": "this classifier has no gradients"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/attack?on=nothing", "on is one of guarded, classifier"),
        ("/v1/attack?stream=1", "stream is true or false"),
        ("/v1/certificate?name=a/b.png", "name is the name of a file"),
        ("/v1/certificate?eps=0.1,0.2", "takes one radius"),
    ],
)
def test_what_cannot_be_asked(client, refused, files, path, said):
    refused(client.picture(path, files[0]), 400, said)


def test_a_service_without_certificates_says_so(client, refused, files):
    refused(client.picture("/v1/certificate", files[0]), 404, "prood serve")
    assert client.get("/v1/model").json()["certificates"] is False


def test_a_certificate_states_the_bound_of_the_same_ball(service, detector, files, images):
    def line(image, name, eps, bound):
        return json.dumps([image.shape[0], name, eps, bound])

    client = service(about=About("small", 0.02, certificate=line))
    found = client.picture("/v1/certificate?eps=0.05&name=a%20b.png", files[0])
    assert found.text.endswith("\n")
    assert "attachment" in found.headers["content-disposition"]
    *rest, bound = found.json()
    assert rest == [1, "a b.png", 0.05]
    assert bound == pytest.approx(detector.bound_of_g(images[:1], 0.05, method="best").item(), abs=1e-6)


def test_a_gallery_is_shown_and_the_users_own_images_come_first(service, files):
    pictures = (Picture("drawn", "in", files[0]), Picture("rings", "out", files[1]))
    gallery = Gallery(pictures, {"in": "Ours.", "out": "Drawn."})
    there = service(about=About("small", 0.02, "digits:train", gallery=gallery)).get("/v1/examples").json()
    assert [one["kind"] for one in there] == ["in"] * 4 + ["out"]
    assert "digits" in there[0]["how"]
    client = service(about=About("small", 0.02, "cifar10:train", gallery=gallery))
    missing = client.get("/v1/examples").json()
    assert [(one["name"], one["how"]) for one in missing] == [("drawn", "Ours."), ("rings", "Drawn.")]
    assert client.get(missing[1]["url"]).content == files[1]


def one(**said):
    return {"pictures": [{"name": "a", "kind": "in", "file": "a.png"} | said]}


@pytest.mark.parametrize(
    "damage",
    [
        one(file="../a.png"),
        one(kind="odd"),
        one(name=3),
        one(file="missing.png"),
        {"how": {"in": 3}},
        {"classifier_threshold": 7},
        {"pictures": None},
    ],
)
def test_a_damaged_gallery_is_one_line(tmp_path, damage):
    assert gallery_of(tmp_path) is None
    folder, sound = tmp_path / "model", {"how": {}, "classifier_threshold": None, **one()}
    folder.mkdir()
    for place in (folder, tmp_path):
        (place / "a.png").write_bytes(b"pixels")
    (folder / LIST).write_text(json.dumps(sound))
    assert gallery_of(tmp_path).pictures[0].png == b"pixels"
    (folder / LIST).write_text(json.dumps(sound | damage))
    with pytest.raises(Damaged, match="model"):
        gallery_of(tmp_path)


def test_a_folder_that_lists_nothing_is_shown_to_nobody(tmp_path, detector, files):
    save(detector.model, tmp_path / MODEL_FILE)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "private.png").write_bytes(files[0])
    assert loaded(tmp_path)[1].gallery is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_shipped_model_comes_with_eight_pictures_and_opens_on_a_proven_one(name):
    detector, about = loaded(name)
    gallery = about.gallery
    assert gallery is not None
    assert len(gallery.pictures) == 8
    files = [one.png for one in gallery.pictures]
    assert len(set(files)) == 8
    shown = [Image.open(BytesIO(file)) for file in files]
    assert {one.size for one in shown} == {(32, 32)}
    kinds = [one.kind for one in gallery.pictures]
    assert kinds == ["out"] * 5 + ["in"] * 3
    assert detector.predict(shown).accepted.tolist() == [False] * 4 + [True] * 4, "as gallery.json says"
    assert detector.certify(shown[:4], about.eps).rejected.tolist() == [True] * 3 + [False], "as gallery.json says"
    assert set(gallery.how) == {"in", "out"}
    assert 1 / detector.count < gallery.classifier_threshold < 1
