"""What cannot be written, read or meant is one line and exit code 2, in every command; and nothing is half done."""

import json
import os
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from prood.models import ProoD, discriminator, load, save, small

FEW = ("--device", "cpu", "--set", "train.epochs=0.4")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A joint model, its two parts, and images of the right and of a wrong shape."""
    folder = tmp_path_factory.mktemp("faults")
    torch.manual_seed(0)
    f, g = small(3, width=4), discriminator("digits", image=(1, 28, 28))
    save(f, folder / "plain" / "model.safetensors")
    save(g, folder / "disc" / "model.safetensors", eps=0.1)
    save(ProoD(f, g, 1.0), folder / "joint" / "model.safetensors", eps=0.1)
    grey = np.zeros((4, 28, 28), dtype=np.uint8)
    np.savez(folder / "grey.npz", images=grey, labels=np.arange(4) % 3)
    np.savez(folder / "colours.npz", images=np.zeros((4, 32, 32, 3), dtype=np.uint8))
    np.savez(folder / "labels.npz", images=grey, labels=np.array([0, 1, 2, 2**40]))
    with zipfile.ZipFile(folder / "junk.npz", "w") as archive:
        archive.writestr("images.npy", b"junk")
    return folder


def refused(answer: tuple[int, str, str], *said: str) -> None:
    code, _, err = answer
    assert code == 2, err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert all(word in err for word in said), err


def certified(place: Path, *words: object, image: object = None) -> list[object]:
    return ["certify", image or f"npz:{place}/grey.npz", "--model", place / "joint", "--eps", "0.1", *words]


def combined(place: Path, run: object) -> list[object]:
    return ["combine", "--classifier", place / "plain", "--discriminator", place / "disc", "--shift", 1, "--run", run]


@pytest.mark.parametrize("below", ["file/x", "file/deep/x"])
def test_a_place_that_cannot_be_written(prood, place, tiny, tmp_path, below):
    (tmp_path / "file").write_text("kept")
    there = tmp_path / below
    refused(
        prood("train", "plain", "--recipe", tiny, "--run", there, "--device", "cpu"), "file", "choose another place"
    )
    refused(prood(*combined(place, there)), "file", "choose another place")
    refused(prood(*certified(place, "--out", there)), "file", "choose another place")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_device_is_not_replaced_by_a_file_and_a_link_stays_one(prood, place, tmp_path):
    (tmp_path / "folder").mkdir()
    refused(prood("data", "preview", "digits:test", "--out", tmp_path / "folder"), "name a file that ends in .png")
    os.mkfifo(tmp_path / "pipe.jsonl")
    refused(prood(*certified(place, "--out", tmp_path / "pipe.jsonl")), "is a device: give the name of a file")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "pipe.jsonl"]
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "folder" / "real.jsonl")
    assert prood(*certified(place, "--out", tmp_path / "link.jsonl"))[0] == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len((tmp_path / "folder" / "real.jsonl").read_text().splitlines()) == 4


def test_what_a_full_disk_left_of_a_combined_model_is_made_anew(prood, place, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))  # the settings fit, the weights do not
    try:
        refused(
            prood(*combined(place, tmp_path / "run")),
            "model.safetensors (File too large): choose another place, or make room",
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["recipe.json"]
    assert prood(*combined(place, tmp_path / "run"))[0] == 0
    assert isinstance(load(tmp_path / "run")[0], ProoD)
    refused(prood(*combined(place, tmp_path / "run")), "holds a run already: choose another folder\n")


@pytest.mark.parametrize("text", ["", '{"train": {"lr"', "[1, 2]", "null"])
def test_a_damaged_recipe_is_named(prood, tiny, tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text(text)
    again = ("train", "plain", "--recipe", tiny, "--run", tmp_path / "run", "--device", "cpu", "--resume")
    refused(prood(*again), "recipe.json is damaged")
    refused(prood("info", tmp_path / "run"), "recipe.json is damaged")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "networks.classifier.width=0"], "width = 0 must be at least 1"),
        (["--set", f"networks.classifier.width={10**21}"], "does not take these arguments"),
        (["--set", "networks.classifier.name=[1]"], "unknown architecture [1]"),
        (["--set", f"train.seed={10**23}"], "seed"),
        (["--seed", "-1"], "-1"),
        (["--set", f"train.batch={10**300}"], "batch"),
        (["--set", f"networks.classifier.classes={10**300}"], "does not take these arguments"),
        (["--set", f"networks.classifier.channels={10**300}"], "does not take these arguments"),
        (["--set", f"networks.discriminator.far_penalty={10**400}"], "far_penalty is a number of more than 300 digits"),
    ],
)
def test_settings_that_no_training_can_have(prood, tiny, tmp_path, words, said):
    run = tmp_path / "run"
    refused(prood("train", "plain", "--recipe", tiny, "--run", run, *FEW, *words), said)
    assert not run.exists()


def test_what_is_empty_is_not_taken_for_the_current_folder(prood, place, tiny, monkeypatch):
    monkeypatch.chdir(place / "joint")  # a run: where an empty path would lead to
    before = sorted(place.rglob("*"))
    refused(prood("train", "plain", "--recipe", tiny, "--run", "", *FEW), "--run is an empty text")
    refused(prood("train", "plain", "--recipe", tiny, "--run=", *FEW), "--run is an empty text")
    refused(prood(*combined(place, "")), "--run is an empty text")
    refused(prood("fuse", place / "plain", place / "disc", "--run", ""), "--run is an empty text")
    refused(prood("wrap", place / "plain", "--discriminator", "", "--shift", 1, "--run", "x"), "--discriminator is an")
    refused(prood("certify", "smooth", "--model", "", "--eps", "0.1"), "--model is an empty text")
    refused(prood("info", ""), "an argument is an empty text")
    refused(prood("report", "", "--out", "x"), "an argument is an empty text")
    assert sorted(place.rglob("*")) == before


def test_labels_that_do_not_count(prood, place, tiny, tmp_path):
    words = ["--set", f"data.inside=npz:{place}/labels.npz", "--set", "train.batch=2"]
    answer = prood("train", "plain", "--recipe", tiny, "--run", tmp_path / "run", *FEW, *words)
    refused(answer, f"has a label {2**40}: number the classes from 0")


def test_images_of_another_shape_than_the_models(prood, place):
    other = f"npz:{place}/colours.npz"
    said = "does not take images of npz:", "of shape (3, 32, 32)"
    refused(
        prood("evaluate", place / "joint", "--in", other, "--out", other, "--eps", "0.1", "--attacks", "none"), *said
    )
    refused(prood("asymptotics", place / "joint", "--in", other, "--directions", 2, "--adversarial", 1), "(3, 32, 32)")


@pytest.mark.parametrize("threshold", ["nan", "2", "-1"])
def test_a_threshold_is_a_confidence(prood, place, threshold):
    refused(prood(*certified(place, f"--threshold={threshold}")), "a threshold is a confidence between 0 and 1")


def test_a_member_that_is_no_array(prood, place):
    refused(prood(*certified(place, image=f"npz:{place}/junk.npz")), "cannot read images from", "junk.npz")


def test_a_path_that_is_mistyped_or_a_folder(prood, place, tmp_path):
    refused(prood(*certified(place, image=tmp_path / "cat.pgn")), "there is no file or folder", "cat.pgn")
    refused(prood(*certified(place, image=tmp_path)), f"the folder {tmp_path} holds no pictures")


def test_a_device_that_knows_only_shapes(prood, place):
    refused(prood(*certified(place, "--device", "meta")), "there is no device 'meta' here")


def test_a_certificate_with_a_number_beyond_all_bounds(prood, place, tmp_path):
    file = tmp_path / "certificates.jsonl"
    assert prood(*certified(place, "--out", file))[0] == 0
    one = json.loads(file.read_text().splitlines()[0])
    file.write_text(json.dumps(one | {"eps": 10**400}) + "\n")
    code, out, err = prood("verify", file)
    assert code != 0
    assert "not a finite number" in out + err
    assert "Traceback" not in err
