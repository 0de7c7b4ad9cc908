"""prood verify, as a user meets it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from prood.certification import Certificate, ImageReference, ModelReference, append, file_sha256, image_sha256
from prood.models import discriminator, save


@pytest.fixture
def certificate(tmp_path) -> Certificate:
    model = tmp_path / "run" / "model.safetensors"
    save(discriminator("digits", image=(1, 6, 6)), model)
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 6), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images)
    image = images[1][None].astype(np.float32) / np.float32(255)
    return Certificate(
        ImageReference(f"npz:{tmp_path}/images.npz", 1, image_sha256(image)),
        ModelReference(str(model.parent), file_sha256(model)),
        norm="linf",
        eps=0.05,
        method="ibp",
        bound=3.0,
    )


def test_all_confirmed(prood, certificate, tmp_path):
    path = tmp_path / "c.jsonl"
    for _ in range(3):
        append(path, certificate)
    code, out, err = prood("verify", path)
    assert (code, err) == (0, "")
    assert out.count("images.npz[1]") == 3
    assert "3 confirmed, 0 refuted, 0 not decided" in out
    assert "1 confirmed, 0 refuted" in prood("verify", path, "--limit", 1)[1]


def test_one_refuted_is_an_error_after_all_were_printed(prood, certificate, tmp_path):
    path = tmp_path / "c.jsonl"
    append(path, replace(certificate, bound=-1e6))
    append(path, certificate)
    code, out, err = prood("verify", path)
    assert code == 2
    assert "1 confirmed, 1 refuted, 0 not decided" in out
    assert err == "error: 1 of 2 certificates are refuted\n"


def test_not_decided_is_a_note_unless_strict(prood, certificate, tmp_path):
    path = tmp_path / "c.jsonl"
    append(path, replace(certificate, model=replace(certificate.model, path="nowhere")))
    code, out, err = prood("verify", path)
    assert code == 0
    assert "not decided" in out
    assert err.startswith("note: 1 of 1 certificates are not decided")
    assert prood("verify", path, "--strict")[0] == 2
    assert prood("verify", path, "--model", certificate.model.path, "--strict")[0] == 0
    code, out, err = prood("verify", path, "--model", tmp_path / "elsewhere")
    assert (code, out) == (2, "")
    assert err == f"error: there is no model at {tmp_path / 'elsewhere'}: say with --model where it is now\n"


def test_json_and_a_cut_line(prood, certificate, tmp_path):
    path = tmp_path / "c.jsonl"
    append(path, certificate)
    with path.open("a") as file:
        file.write('{"format": 1, "inp')
    code, out, err = prood("verify", path, "--json", "--input", certificate.input.name)
    assert code == 0
    assert "line 2" in err
    (found,) = map(json.loads, out.splitlines())
    assert found["outcome"] == "confirmed"
    assert found["bound"] <= found["stated"] == 3.0
    code, _, err = prood("verify", path, "--strict", "--input", certificate.input.name)
    assert code == 2
    assert f"{path} is not whole: line 2" in err


def test_what_a_user_gets_wrong(prood, tmp_path):
    (tmp_path / "bad.jsonl").write_text("{}\n")
    (tmp_path / "empty.jsonl").write_text("")
    for name, what in (("bad", "line 1"), ("empty", "no certificate"), ("none", "cannot read")):
        code, _, err = prood("verify", tmp_path / f"{name}.jsonl")
        assert code == 2
        assert what in err
        assert err.count("\n") == 1


def test_pictures_that_were_moved_are_found_in_their_folder(prood, certificate, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    path = tmp_path / "c.jsonl"
    for number in range(2):
        pixels = np.full((6, 6), 100 + number, dtype=np.uint8)
        Image.fromarray(pixels).save(before / f"{number}.png")
        digest = image_sha256(pixels[None].astype(np.float32) / np.float32(255))
        append(path, replace(certificate, input=ImageReference(str(before / f"{number}.png"), None, digest)))
    before.rename(after)
    assert "0 confirmed, 0 refuted, 2 not decided" in prood("verify", path)[1]
    assert "2 confirmed, 0 refuted, 0 not decided" in prood("verify", path, "--input", after)[1]
    (after / "0.png").rename(after / "2.png")
    (after / "1.png").rename(after / "0.png")  # under the name of another
    assert "0 confirmed, 1 refuted, 1 not decided" in prood("verify", path, "--input", after)[1]


def test_images_that_are_nowhere_are_a_mistake(prood, certificate, tmp_path):
    path = tmp_path / "c.jsonl"
    append(path, certificate)
    code, out, err = prood("verify", path, "--input", "nosuch")
    assert (code, out) == (2, "")
    assert err == "error: there is no image set 'nosuch': 'prood data list' shows what there is\n"
