"""Most of this runs where the package `datasets` is installed, which Prood does not require."""

import pickle
import sys
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import load, open_set
from prood.data.formats.pictures import decode, fit
from prood.errors import Damaged, Mismatch, MissingPackage, NotFound

needs_datasets = pytest.mark.skipif(find_spec("datasets") is None, reason="needs the package datasets")
SHAPE = (3, 6, 6)


def pictures(count: int = 4) -> list[bytes]:
    random = np.random.default_rng(0)
    files = []
    for number in range(count):
        file = BytesIO()
        Image.fromarray(random.integers(0, 256, (9 + number, 12, 3), dtype=np.uint8)).save(file, "PNG")
        files.append(file.getvalue())
    return files


def saved(folder: Path, columns: dict[str, list[Any]], **kinds: Any) -> str:
    import datasets

    features = datasets.Features({"image": datasets.Image(), **kinds})
    rows = {"image": [{"bytes": file, "path": None} for file in pictures()]} | columns
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder))
    return f"hf:{folder}"


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingPackage, match="pip install datasets"):
        load(f"hf:{tmp_path}")


@needs_datasets
@pytest.mark.filterwarnings("default")
def test_classes_and_images_are_those_of_the_set(tmp_path: Path) -> None:
    import datasets

    name = saved(tmp_path / "train", {"label": [1, 0, 1, 2]}, label=datasets.ClassLabel(names=["x", "y", "z"]))
    images = open_set(name, shape=SHAPE)
    assert (images.classes, images.labels.tolist()) == (("x", "y", "z"), [1, 0, 1, 2])
    expected = torch.stack([fit(decode(file), SHAPE) for file in pictures()])
    assert torch.equal(images.take([3, 0]), expected[[3, 0]])
    assert torch.equal(images.load().images, expected)
    assert torch.equal(pickle.loads(pickle.dumps(images)).take([2]), expected[2:3])
    with pytest.raises(Mismatch, match=r"row 1 .*data.image"):
        load(name)


@needs_datasets
@pytest.mark.filterwarnings("default")
def test_labels_may_be_texts_secret_or_missing(tmp_path: Path) -> None:
    import datasets

    text = saved(tmp_path / "text", {"label": ["b", "a", "b", "c"]}, label=datasets.Value("string"))
    assert load(text, shape=SHAPE).classes == ("a", "b", "c")
    none = saved(tmp_path / "none", {})
    assert load(none, shape=SHAPE).labels is None
    kind = datasets.ClassLabel(names=["x", "y"])
    assert load(saved(tmp_path / "secret", {"label": [-1] * 4}, label=kind), shape=SHAPE).labels is None
    with pytest.raises(Damaged, match="1 of the 4 images"):
        load(saved(tmp_path / "some", {"label": [0, 1, -1, 0]}, label=kind), shape=SHAPE)


@needs_datasets
@pytest.mark.filterwarnings("default")
def test_damaged_images_are_refused_or_skipped(tmp_path: Path) -> None:
    import datasets

    files = [{"bytes": file, "path": None} for file in pictures()]
    files[1], files[2] = {"bytes": files[1]["bytes"][:70], "path": None}, None
    name = saved(tmp_path / "a", {"image": files, "label": [0, 1, 0, 1]}, label=datasets.ClassLabel(names=["x", "y"]))
    with pytest.raises(Damaged, match=r"2 of 4 .*row 1 \(.*row 2 \("):
        load(name, shape=SHAPE)
    images = open_set(name, shape=SHAPE, damaged="skip")
    assert images.labels.tolist() == [0, 1]
    assert len(images.skipped) == 2


@needs_datasets
@pytest.mark.filterwarnings("default")
def test_what_is_no_saved_set_is_refused(tmp_path: Path) -> None:
    import datasets

    with pytest.raises(NotFound, match="save_to_disk"):
        load(f"hf:{tmp_path}")
    numbers = datasets.Dataset.from_dict({"x": [1, 2]})
    datasets.DatasetDict({"train": numbers, "test": numbers}).save_to_disk(str(tmp_path / "several"))
    with pytest.raises(NotFound, match=r"hf:.*several/test"):
        load(f"hf:{tmp_path}/several")
    with pytest.raises(Damaged, match="columns x, but no column with images"):
        load(f"hf:{tmp_path}/several/train")
    next((tmp_path / "several" / "train").glob("*.arrow")).write_bytes(b"damaged")
    with pytest.raises(Damaged, match="train"):
        load(f"hf:{tmp_path}/several/train")
