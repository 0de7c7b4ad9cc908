"""Certificates as lines: they read back as they were written, and damage is named."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from prood.certification import (
    Certificate,
    ImageReference,
    ModelReference,
    append,
    file_sha256,
    image_sha256,
    read,
)
from prood.certification.certify import stated
from prood.certification.verify.exact import confidence_is_too_small, in_logit
from prood.detector import Detector
from prood.errors import Damaged, NoAccess, Unsupported
from prood.models import discriminator

ONE = Certificate(
    ImageReference("digits:test", 12, "ab"),
    ModelReference("runs/ö", "cd"),
    norm="linf",
    eps=0.1 + 0.2,
    method="crown-ibp",
    bound=float(np.float32(-1.2345678)),
    shift=3.0,
    classes=8,
    confidence=0.1251,
    seconds=0.02,
)
KEYS = "digest input model norm eps method arithmetic bound shift classes confidence seconds version format"


def test_a_certificate_is_one_line_with_the_agreed_keys(tmp_path):
    append(tmp_path / "new" / "c.jsonl", ONE)
    (line,) = (tmp_path / "new" / "c.jsonl").read_text().splitlines()
    values = json.loads(line)
    assert set(values) == set(KEYS.split())
    assert values["input"] == {"name": "digits:test", "row": 12, "sha256": "ab"}
    assert values["model"] == {"path": "runs/ö", "sha256": "cd"}


def test_what_was_written_reads_back_bit_for_bit(tmp_path):
    path = tmp_path / "c.jsonl"
    bare = replace(ONE, input=ImageReference("a.png", None, "ef"), classes=None, confidence=None, shift=0.0, eps=5e-324)
    for one in (ONE, bare):
        append(path, one)
    assert read(path) == ([ONE, bare], "")


def test_a_cut_last_line_is_left_out_and_makes_way(tmp_path):
    path = tmp_path / "c.jsonl"
    append(path, ONE)
    whole = path.read_bytes()
    for length in (1, 30, len(whole) - 2):
        path.write_bytes(whole + whole[:length])
        found, note = read(path)
        assert found == [ONE]
        assert "line 2" in note
        append(path, replace(ONE, eps=0.5))
        assert read(path) == ([ONE, replace(ONE, eps=0.5)], "")


def test_a_line_that_only_lacks_its_end_is_whole(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(ONE.to_json())
    assert read(path) == ([ONE], "")
    append(path, ONE)
    assert read(path) == ([ONE, ONE], "")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"eps": -1}, "eps is negative"),
        ({"eps": "0.3"}, "eps is '0.3'"),
        ({"eps": True}, "eps is True"),
        ({"bound": float("nan")}, "bound is nan"),
        ({"bound": float("inf")}, "bound is inf"),
        ({"norm": "l3"}, "norm is 'l3'"),
        ({"input": None}, "input is None"),
        ({"input": {"name": "x", "row": -1, "sha256": ""}}, "row is -1"),
        ({"model": {"path": "x"}}, "sha256 is None"),
        ({"classes": 2.5}, "classes is 2.5"),
        ({"format": 2}, "newer format"),
        ({"format": None}, "format is None"),
        ({"digest": ""}, "it has no digest"),
        ({"confidence_bound": 0.001}, "it states 'confidence_bound', which no certificate does"),
        ({"input": {"name": "x", "row": 1, "sha256": "", "note": "all is well"}}, "it states 'note'"),
        ({"model": {"path": "x", "sha256": "", "title": "safe"}}, "it states 'title'"),
        ({"method": "proved by oracle"}, "method is 'proved by oracle'"),
        ({"seconds": -5}, "seconds is negative"),
        ({"confidence": 5.0}, "confidence is 5.0"),
        ({"version": "99, certified"}, "version is '99, certified'"),
        ({"input": {"name": "a" * 5000, "row": 1, "sha256": ""}}, "at most 4,096 letters"),
        ({"input": {"name": "\ud800", "row": 1, "sha256": ""}}, "not a text"),
        ({"input": {"name": "x", "row": 10**30, "sha256": ""}}, "row is 1000"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, change, what):
    path = tmp_path / "c.jsonl"
    append(path, ONE)
    with path.open("a") as file:
        file.write(json.dumps({**json.loads(ONE.to_json()), **change}) + "\n")
    with pytest.raises(Damaged) as error:
        read(path)
    assert what in str(error.value)


@pytest.mark.parametrize("line", [b"{", b"[1]", b"\xff\xfe", b"null"])
def test_damage_in_the_middle_is_an_error(tmp_path, line):
    path = tmp_path / "c.jsonl"
    path.write_bytes(line + b"\n" + ONE.to_json().encode() + b"\n")
    with pytest.raises(Damaged):
        read(path)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(NoAccess):
        read(tmp_path / "none.jsonl")


def test_the_hashes_are_what_the_format_says(tmp_path):
    image = (np.arange(8, dtype=np.uint8).astype(np.float32) / np.float32(255)).reshape(1, 2, 4)
    assert image_sha256(image) == hashlib.sha256(b"float32(1, 2, 4)" + image.astype("<f4").tobytes()).hexdigest()
    assert image_sha256(image) == image_sha256(np.asfortranarray(image))
    assert image_sha256(image) != image_sha256(image.reshape(1, 4, 2))
    with pytest.raises(Unsupported, match="float64"):
        image_sha256(image.astype(np.float64))
    (tmp_path / "file").write_bytes(b"abc")
    assert file_sha256(tmp_path / "file") == hashlib.sha256(b"abc").hexdigest()


def test_the_stated_confidence_is_rounded_up_and_hardly_more():
    g = discriminator("digits", image=(1, 6, 6))
    for classes in (2, 8, 10, 1000):
        f = nn.Sequential(nn.Flatten(), nn.Linear(36, classes))
        for shift in (0.0, 3.0, -2.7):
            detector = Detector(f, g, shift=shift)
            for bound in (-1e30, -800.0, -40.0, -5.0, -1e-3, 0.0, 2.5, 17.0, 40.0, 3e38):
                said, score = stated(detector, bound), in_logit(bound, shift)
                assert not confidence_is_too_small(said, score, classes)
                if said < 1:
                    assert confidence_is_too_small(said * (1 - 2.0**-46), score, classes)


@pytest.mark.parametrize("change", [{"bound": -2.0}, {"eps": 0.3}, {"norm": "l2"}, {"seconds": 7.0}, {"digest": "x"}])
def test_a_line_that_was_changed_is_not_intact(tmp_path, change):
    path = tmp_path / "c.jsonl"
    append(path, ONE)
    ((whole,), _) = read(path)
    assert whole.intact
    assert whole == ONE
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}) + "\n")
    ((changed,), _) = read(path)
    assert not changed.intact


def test_a_line_without_a_digest_is_no_certificate(tmp_path):
    path = tmp_path / "c.jsonl"
    values = json.loads(ONE.to_json())
    del values["digest"]
    path.write_text(json.dumps(values) + "\n")
    with pytest.raises(Damaged, match="None"):
        read(path)
