"""prood predict as a user meets it: a line for each image, and exit code 2 at the end if one could not be read."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.detector import Detector
from prood.models import ProoD, discriminator, save, small


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    torch.manual_seed(0)
    model = ProoD(small(3, width=4), discriminator("digits", image=(1, 28, 28)), 1.0)
    save(model, folder / "run" / "model.safetensors", classes=["zero", "one", "two"], threshold=0.4, accept=0.95)
    (folder / "photos").mkdir()
    draw = np.random.default_rng(0)
    for number in range(3):
        pixels = draw.integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
    return folder


def asked(place: Path, *words: object) -> tuple[object, ...]:
    return ("predict", *words, "--model", place / "run", "--device", "cpu")


def test_a_table_of_pictures_folders_and_sets(prood, place):
    code, out, err = prood(*asked(place, place / "photos" / "0.png", place / "photos", "faces", "--limit", 2))
    assert (code, err) == (0, "")
    assert out.count("photos/0.png") == 2
    assert out.count("faces:test[") == 2
    assert "an image is rejected below 0.4: 95%" in out
    answer = Detector.load(place / "run").predict(str(place / "photos" / "1.png"))[0]
    (line,) = (line for line in out.splitlines() if "photos/1.png" in line)
    assert f"{answer.confidence:.4f}" in line
    assert answer.name in line
    assert ("yes" in line.split()) == answer.accepted
    assert (answer.reason or "yes") in line


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_programs_get_a_line_for_each_image_and_a_damaged_one_has_its_own(prood, place, tmp_path, form):
    (tmp_path / "damaged.png").write_bytes(b"damaged")
    code, out, err = prood(*asked(place, tmp_path / "damaged.png", place / "photos", form))
    assert code == 2
    assert err.startswith("error: 1 of 4 images")
    assert err.count("\n") == 1
    rows = (
        [json.loads(line) for line in out.splitlines()] if form == "--json" else list(csv.DictReader(io.StringIO(out)))
    )
    assert [Path(row["image"]).name for row in rows] == ["damaged.png", "0.png", "1.png", "2.png"]
    assert "damaged.png" in rows[0]["error"]
    assert rows[0]["confidence"] in (None, "")
    answers = Detector.load(place / "run").predict([place / "photos" / f"{number}.png" for number in range(3)])
    assert [float(row["confidence"]) for row in rows[1:]] == pytest.approx(answers.confidence.tolist(), rel=1e-6)
    assert [row["name"] for row in rows[1:]] == list(answers.name)
    assert [str(row["accepted"]) for row in rows[1:]] == [str(one) for one in answers.accepted.tolist()]


def test_the_table_goes_on_after_a_damaged_picture(prood, place, tmp_path):
    (tmp_path / "a.png").write_bytes(b"damaged")
    code, out, _ = prood(*asked(place, tmp_path / "a.png", place / "photos"))
    assert code == 2
    assert "cannot read the image" in out
    assert out.count("photos/") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch.png"], "no file or folder 'nosuch.png'"),
        (["faces", "--json", "--csv"], "give one of them"),
        (["faces", "--threshold", "2"], "between 0 and 1"),
        (["cifar10:test"], "cifar10"),
    ],
)
def test_wrong_words_are_one_line(prood, place, words, said):
    code, _, err = prood(*asked(place, *words))
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
