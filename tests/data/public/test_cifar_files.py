import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import ImageSet
from prood.data.public.labelled import CIFAR10_CLASSES, cifar10, cifar100
from prood.errors import ProodError

BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
RANDOM = np.random.default_rng(0)
PIXELS = {
    name: RANDOM.integers(0, 256, (3 + i, 3, 32, 32), np.uint8) for i, name in enumerate([*BATCHES, "test_batch"])
}
LABELS = {name: RANDOM.integers(0, 10, len(pixels)).tolist() for name, pixels in PIXELS.items()}
FINE = [99, 0, 42]
HUNDRED = [f"thing_{number}" for number in range(100)]
OTHERS = tuple("abcdefghij")


def labels_of(names: list[str]) -> list[int]:
    return [label for name in names for label in LABELS[name]]


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_binary(folder: Path) -> None:
    home = folder / "cifar-10-batches-bin"
    for name, pixels in PIXELS.items():
        labels = np.array(LABELS[name], np.uint8)[:, None]
        put(home / f"{name}.bin", np.concatenate([labels, pixels.reshape(-1, 3072)], axis=1).tobytes())
    put(home / "batches.meta.txt", "".join(f"{name}\n" for name in [*OTHERS, ""]).encode())


def write_png(folder: Path) -> None:
    home = folder / "package"
    home.mkdir(parents=True)
    for name, pixels in PIXELS.items():
        Image.fromarray(pixels.reshape(-1, 3, 1024).transpose(0, 2, 1).copy()).save(home / f"{name}.png")
    put(home / "train_lables.json", json.dumps(labels_of(BATCHES)).encode())
    put(home / "test_lables.json", json.dumps(LABELS["test_batch"]).encode())


def write_hundred(folder: Path) -> None:
    home = folder / "cifar-100-binary"
    records = np.concatenate(
        [np.array([[1, 2, 3], FINE], np.uint8).T, PIXELS["data_batch_1"].reshape(-1, 3072)], axis=1
    )
    for split in ("train", "test"):
        put(home / f"{split}.bin", records.tobytes())
    put(home / "fine_label_names.txt", "\n".join(HUNDRED).encode())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All layouts of both sets."""
    write_binary(tmp_path)
    write_png(tmp_path)
    write_hundred(tmp_path)
    return tmp_path


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).rename(folder / f"{name}.away")


def check(read: ImageSet, names: list[str]) -> None:
    assert torch.equal(read.images, torch.from_numpy(np.concatenate([PIXELS[name] for name in names])))
    assert read.labels is not None
    assert read.labels.tolist() == labels_of(names)


@pytest.mark.parametrize(
    ("gone", "classes"),
    [
        ((), OTHERS),
        (("cifar-10-batches-bin",), CIFAR10_CLASSES),
        (("cifar-10-batches-bin/batches.meta.txt",), CIFAR10_CLASSES),
    ],
)
def test_reads_every_layout_alike(folder: Path, gone: tuple[str, ...], classes: tuple[str, ...]) -> None:
    remove(folder, *gone)
    train, test = cifar10(folder, "train"), cifar10(folder, "test")
    check(train, BATCHES)
    check(test, ["test_batch"])
    assert (train.name, test.name) == ("cifar10:train", "cifar10:test")
    assert train.classes == test.classes == classes


def test_reads_fine_labels(folder: Path) -> None:
    for split in ("train", "test"):
        read = cifar100(folder, split)
        assert read.name == f"cifar100:{split}"
        assert torch.equal(read.images, torch.from_numpy(PIXELS["data_batch_1"]))
        assert read.labels is not None
        assert read.labels.tolist() == FINE
        assert read.classes == tuple(HUNDRED)


def test_prefers_binary_to_png(folder: Path) -> None:
    for file in (folder / "package").iterdir():
        file.write_bytes(b"damaged")
    check(cifar10(folder, "train"), BATCHES)


def refused(path: Path, folder: Path, split: str = "train", read: Callable = cifar10) -> str:
    with pytest.raises(ProodError, match="fetch the set again") as caught:
        read(folder, split)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def only(folder: Path, layout: str) -> Path:
    """The home of this layout, after the preferred ones went away."""
    homes = ["cifar-10-batches-bin", "package"]
    remove(folder, *homes[: homes.index(layout)])
    return folder / layout


def test_refuses_an_empty_or_missing_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        refused(folder, folder)
        refused(folder, folder, read=cifar100)


@pytest.mark.parametrize(
    ("layout", "file"),
    [
        ("cifar-10-batches-bin", "data_batch_5.bin"),
        ("package", "data_batch_2.png"),
        ("package", "train_lables.json"),
    ],
)
def test_refuses_missing_truncated_and_foreign_files(folder: Path, layout: str, file: str) -> None:
    path = only(folder, layout) / file
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2 + 1], whole[:-100], b"<html>404</html>"):
        path.write_bytes(damaged)
        refused(path, folder)
    path.unlink()
    assert "there is no file" in refused(path, folder)
    path.mkdir()
    assert "there is no file" in refused(path, folder)


def test_refuses_wrong_labels_(folder: Path) -> None:
    path = only(folder, "cifar-10-batches-bin") / "test_batch.bin"
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])
    assert "the label 10" in refused(path, folder, "test")
    path.write_bytes(b"")
    refused(path, folder, "test")
    remove(folder, "cifar-10-batches-bin")
    labels = folder / "package" / "test_lables.json"
    for content in ("[1, 2]", "{}", "[1.5]", '["a"]', "[" * 100_000, "[true]", '"ä"', f"[{10**30}]"):
        labels.write_text(content, encoding="latin1")
        refused(labels, folder, "test")
    labels.write_text(json.dumps([0] * 7 + [10]))
    assert "the label 10" in refused(folder / "package" / "test_batch.png", folder, "test")


@pytest.mark.parametrize(("size", "mode"), [((1023, 8), "RGB"), ((1024, 8), "L"), ((1024, 8), "RGBA")])
def test_refuses_another_picture(folder: Path, size: tuple[int, int], mode: str) -> None:
    path = only(folder, "package") / "test_batch.png"
    Image.new(mode, size).save(path)
    assert mode in refused(path, folder, "test")


def test_refuses_wrong_names(folder: Path) -> None:
    path = folder / "cifar-10-batches-bin" / "batches.meta.txt"
    path.write_text("one\n")
    assert "1 classes instead of 10" in refused(path, folder)
    path = folder / "cifar-100-binary" / "fine_label_names.txt"
    path.write_text("apple\n")
    assert "1 classes instead of 100" in refused(path, folder, "test", cifar100)
    path.unlink()
    assert "there is no file" in refused(path, folder, "test", cifar100)


@pytest.mark.parametrize(("pickled", "read"), [("cifar-10-batches-py", cifar10), ("cifar-100-python", cifar100)])
def test_never_opens_the_files_for_python(tmp_path: Path, pickled: str, read: Callable) -> None:
    (tmp_path / pickled).mkdir()
    assert "binary files" in refused(tmp_path / pickled, tmp_path, read=read)
