import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data.formats.folder import Tree, find_pictures
from prood.data.formats.pictures import MIXED
from prood.data.public.openimages import openimages
from prood.errors import Damaged, NotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for split, count in (("train", 12), ("test", 2)):
        for number in range(count):
            path = tmp_path / split / f"{number % 3}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(path)
    return tmp_path


def test_is_scaled_down_into_a_cache_with_a_filter_drawn_for_each_picture(folder: Path) -> None:
    read = openimages(folder, "train", None)
    root = folder / "train"
    tree = Tree(root, find_pictures(root), (3, 32, 32), filters=MIXED)
    assert read.name == "openimages:train"
    assert read.labels is None
    assert torch.equal(read.load().images, torch.stack([tree.read(row) for row in range(12)]))
    assert (folder / "cache" / "openimages-train-32x32.bin").stat().st_size == 12 * 3 * 32 * 32
    plain = Tree(root, tree.files, tree.shape)
    assert not torch.equal(read.load().images, torch.stack([plain.read(row) for row in range(12)]))


def test_each_split_and_shape_has_a_cache_of_its_own(folder: Path) -> None:
    sets = [openimages(folder, *key) for key in (("train", (3, 28, 28)), ("train", (1, 28, 28)), ("test", (3, 28, 28)))]
    assert [(len(s), s.shape) for s in sets] == [(12, (3, 28, 28)), (12, (1, 28, 28)), (2, (3, 28, 28))]
    assert [s.load().images.shape[1:] == s.shape for s in sets] == [True] * 3


def test_damaged_pictures_are_skipped_and_named(folder: Path) -> None:
    (folder / "train" / "1" / "4.jpg").write_bytes(b"no picture")
    assert len(openimages(folder, "train", None)) == 11
    assert json.loads((folder / "cache" / "openimages-train-32x32.json").read_text())["skipped"] == ["1/4.jpg"]


def test_the_pictures_may_go_once_the_cache_is_there(folder: Path) -> None:
    before = openimages(folder, "train", None)
    shutil.rmtree(folder / "train")
    after = openimages(folder, "train", None)
    assert torch.equal(after.load().images, before.load().images)
    assert after.fingerprint() == before.fingerprint()
    with pytest.raises(Damaged):
        openimages(folder, "train", (3, 16, 16))
    (folder / "train").mkdir()
    with pytest.raises(NotFound):
        openimages(folder, "train", None)
