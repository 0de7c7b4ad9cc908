"""prood verify, as a user meets it."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy.stats import beta

from prood.certification import Certificate, ImageReference, ModelReference, append, file_sha256, image_sha256
from prood.certification.sampling import Sample
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
    append(path, replace(certificate, model=replace(certificate.model, path="nowhere")))
    append(path, certificate)
    code, out, err = prood("verify", path)
    assert code == 1
    assert "1 confirmed, 1 refuted, 1 not decided" in out
    assert err == "error: 1 of 3 certificates are refuted\n"


def test_what_is_not_decided_has_an_exit_code_of_its_own(prood, certificate, tmp_path):
    path, other = tmp_path / "c.jsonl", tmp_path / "other.jsonl"
    append(path, replace(certificate, model=replace(certificate.model, path="nowhere")))
    append(other, replace(certificate, input=replace(certificate.input, name=f"npz:{tmp_path}/nowhere.npz")))
    for file in (path, other):
        for more in ((), ("--strict",)):  # which has nothing left to say
            code, out, err = prood("verify", file, *more)
            assert code == 3
            assert "not decided" in out
            assert err.startswith("note: 1 of 1 certificates are not decided")
    assert prood("verify", path, "--model", certificate.model.path)[0] == 0
    code, out, err = prood("verify", path, "--model", tmp_path / "elsewhere")
    assert (code, out) == (2, "")
    assert err == f"error: there is no model at {tmp_path / 'elsewhere'}: give its place with --model\n"


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


def test_a_name_cannot_forge_a_line(prood, certificate, tmp_path):
    """Lines are for people and for grep: what a name says must not look as if the verifier had said it."""
    path = tmp_path / "c.jsonl"
    forged = "a.png\x1b[2K\rconfirmed   b.png\nconfirmed   c.png"
    append(path, replace(certificate, input=ImageReference(forged, None, "")))
    append(path, replace(certificate, model=ModelReference(forged, "")))
    code, out, err = prood("verify", path)
    assert code == 3
    assert not any(one in out + err for one in "\x1b\r")
    assert not any(line.startswith("confirmed") for line in out.splitlines())


@pytest.mark.parametrize("what", ["model", "image", "set", "list", "file"])
def test_pipes_and_devices_are_not_waited_for(prood, certificate, tmp_path, what):
    path, pipe = tmp_path / "c.jsonl", tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    changes = {
        "model": {"model": replace(certificate.model, path=str(pipe))},
        "image": {"input": ImageReference(str(pipe), None, "")},
        "set": {"input": ImageReference(f"npz:{pipe}", 0, "")},
        "list": {"input": ImageReference(f"csv:{pipe}", 0, "")},
        "file": {},
    }
    append(path, replace(certificate, **changes[what]))
    code, _, err = prood("verify", pipe if what == "file" else path)
    assert code == (2 if what == "file" else 3)
    assert "Traceback" not in err
    if what == "model":
        append(path, replace(certificate, model=replace(certificate.model, path="/dev/zero")))
        assert prood("verify", path)[0] == 3


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"format": 1, "input": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
        b'{"format": 1, "input": {"name": "\\ud800", "row": null, "sha256": ""}}',
        b'{"format": 1, "input": {"name": "' + b"a" * 10**7 + b'", "row": null, "sha256": ""}}',
        b'{"format": ' + b"9" * 10_000 + b"}",
    ],
    ids=["lists", "objects", "surrogate", "long", "number"],
)
def test_hostile_lines_are_refused_in_one_short_line(prood, tmp_path, line):
    path = tmp_path / "c.jsonl"
    path.write_bytes(line + b"\n")
    code, _, err = prood("verify", path)
    assert code == 2
    assert err.startswith(f"error: line 1 of {path} is not a certificate")
    assert err.count("\n") == 1
    assert len(err) < 1000


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
    assert err == "error: there is no image set 'nosuch': 'prood data list' shows all\n"


@pytest.fixture
def many(certificate, tmp_path):
    """A folder of 200 certificates, of which the last is wrong."""
    for file in range(2):
        wrong = [replace(certificate, bound=-1e6)] if file else []
        append(tmp_path / "certs" / f"{file}.jsonl", *[certificate] * (100 - len(wrong)), *wrong)
    return tmp_path / "certs"


def test_a_sample_says_what_it_shows_of_all(prood, many):
    code, out, _ = prood("verify", many, "--sample", 30, "--seed", 1)
    assert code == 0
    assert out.splitlines()[0] == "30 confirmed, 0 refuted, 0 not decided"
    assert "200 certificates, 30 of them drawn at random (seed 1)" in out
    assert "with 99% confidence, at most 14.3% of all are wrong" in out  # 1 − 0.01^(1/30) = 14.23%, rounded up
    assert prood("verify", many, "--at-most", 0.1, "--level", 0.9, "--seed", 1)[1].startswith("22 confirmed")
    seeds = [int(prood("verify", many, "--sample", 1)[1].split("seed ")[1].split(")")[0]) for _ in range(2)]
    assert seeds[0] != seeds[1]


def test_a_wrong_one_that_is_drawn_is_refuted_and_counted(prood, many):
    code, out, err = prood("verify", many, "--sample", 1000)
    assert code == 1
    assert "all 200 certificates were checked: 1 are not confirmed" in out
    assert "1 of 200 certificates are refuted" in err
    seed = next(seed for seed in range(100) if 199 in Sample(50, seed=seed).draw(200))
    code, out, _ = prood("verify", many, "--sample", 50, "--seed", seed, "--json")
    assert code == 1
    *lines, last = map(json.loads, out.splitlines())
    assert [one["place"] for one in lines if one["outcome"] == "refuted"] == [f"line 100 of {many / '1.jsonl'}"]
    assert (last["drawn"], last["refuted"], last["level"]) == (50, 1, 0.99)
    assert last["at_most"] == pytest.approx(beta.ppf(0.99, 2, 49), rel=1e-9)


def test_a_line_that_is_none_stops_a_sample_that_meets_it(prood, many):
    (many / "1.jsonl").write_text('{"format": 1}\n' * 100)
    code, out, err = prood("verify", many, "--sample", 150)
    assert code == 2
    assert "at most" not in out
    assert f"of {many / '1.jsonl'} is not a certificate" in err
    assert prood("verify", many, "--sample", 3, "--limit", 2)[0] == 2
    assert prood("verify", many, "--at-most", 2)[0] == 2


@pytest.mark.parametrize(
    "names",
    [
        {"input": ImageReference("smooth:2000000", 0, "")},  # half an hour of noise
        {"input": ImageReference(f"folder/{'x' * 3000}.png", None, "")},  # longer than a name may be
        {"model": ModelReference("x" * 3000, "")},
    ],
)
def test_names_that_cost_hours_or_are_too_long_leave_a_line_open(prood, certificate, tmp_path, names):
    append(tmp_path / "c.jsonl", replace(certificate, **names))
    append(tmp_path / "c.jsonl", certificate)
    code, out, _ = prood("verify", tmp_path / "c.jsonl")
    assert code == 3
    assert "1 confirmed, 0 refuted, 1 not decided" in out


def test_a_name_is_shown_as_it_is(prood, certificate, tmp_path):
    append(tmp_path / "c.jsonl", replace(certificate, input=ImageReference("a:cat:b.png", None, "")))
    assert "a:cat:b.png" in prood("verify", tmp_path / "c.jsonl")[1]
