"""prood score: what it writes, what it says, and what it refuses in one line."""

import json
import sys

import numpy as np
import pytest
import torch

from prood.models import ProoD, discriminator, save, small


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("score") / "run"
    joint = ProoD(small(4, channels=1, width=4), discriminator("digits", image=(1, 8, 8)), 0.0)
    save(joint, folder / "model.safetensors", threshold=0.3)
    return folder


@pytest.fixture
def images(tmp_path):
    np.savez(tmp_path / "images.npz", images=np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8))
    return tmp_path / "images.npz"


def test_it_writes_shards_and_says_what_is_in_them(prood, run, images, tmp_path):
    words = ["score", images, "--model", run, "--out", tmp_path / "out", "--eps", "0.01,8/255", "--rows", 8]
    code, out, err = prood(*words, "--workers", 1)
    assert code == 0
    assert "20 images" in out
    assert "0 could not be read" in out
    assert "20 images of 20, 3 of 3 shards" in err
    progress = json.loads((tmp_path / "out" / "_prood" / "progress-0-of-1.json").read_bytes())
    assert (progress["images"], progress["complete"]) == (20, True)
    assert json.loads((tmp_path / "out" / "_manifest.json").read_bytes())["totals"]["images"] == 20
    assert "nothing was missing" in prood(*words, "--workers", 1)[1]


def test_a_share_says_that_it_is_one(prood, run, images, tmp_path):
    words = ["score", images, "--model", run, "--out", tmp_path / "out", "--rows", 8, "--workers", 1]
    code, out, _ = prood(*words, "--shard", "2/3")
    assert (code, "shards 2/3: 4 images" in out) == (0, True)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--shard", "3/3"], "3/3"),
        (["--shard", "one"], "'one'"),
        (["--shard", "0/0"], "0/0"),
        (["--eps", "much"], "much"),
        (["--bound", "auto"], "auto"),
        (["--engine", "dask"], "dask"),
        (["--columns", "colour,error"], "colour"),
        (["--out", "/proc/no/permission"], "/proc/no"),
    ],
)
def test_what_is_wrong_is_one_line(prood, run, images, tmp_path, more, said):
    out = [] if "--out" in more else ["--out", tmp_path / "out"]
    code, _, err = prood("score", images, "--model", run, *out, *more)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("package", "more"), [("pyarrow", []), ("ray", ["--engine", "ray"])])
def test_a_missing_package_is_named(prood, run, images, tmp_path, monkeypatch, package, more):
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = prood("score", images, "--model", run, "--out", tmp_path / "out", *more)
    assert code == 2
    assert package in err
    assert "pip install '.[scale]'" in err
