import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import ImageSet
from prood.data.formats.cifar import CIFAR10_CLASSES, read_cifar10, read_cifar100
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

Writer = Callable[..., bytes]


def labels_of(names: list[str]) -> list[int]:
    return [label for name in names for label in LABELS[name]]


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_python(folder: Path, python2: Writer) -> None:
    home = folder / "cifar-10-batches-py"
    for name, pixels in PIXELS.items():
        content = {b"batch_label": name.encode(), b"labels": LABELS[name], b"data": pixels.reshape(-1, 3072)}
        put(home / name, python2(content | {b"filenames": [b"a.png"] * len(pixels)}))
    put(home / "batches.meta", python2({b"label_names": [name.encode() for name in OTHERS], b"num_vis": 3072}))


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


def write_hundred(folder: Path, python2: Writer) -> None:
    pixels = PIXELS["data_batch_1"].reshape(-1, 3072)
    home = folder / "cifar-100-python"
    for split in ("train", "test"):
        put(home / split, python2({b"data": pixels, b"fine_labels": FINE, b"coarse_labels": [1, 2, 3]}))
    names = [name.encode() for name in HUNDRED]
    put(home / "meta", python2({b"fine_label_names": names, b"coarse_label_names": names[:20]}))
    home = folder / "cifar-100-binary"
    records = np.concatenate([np.array([[1, 2, 3], FINE], np.uint8).T, pixels], axis=1)
    for split in ("train", "test"):
        put(home / f"{split}.bin", records.tobytes())
    put(home / "fine_label_names.txt", "\n".join(HUNDRED).encode())


@pytest.fixture
def folder(tmp_path: Path, python2: Writer) -> Path:
    """All layouts of both sets."""
    write_python(tmp_path, python2)
    write_binary(tmp_path)
    write_png(tmp_path)
    write_hundred(tmp_path, python2)
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
        (("cifar-10-batches-py",), OTHERS),
        (("cifar-10-batches-py", "cifar-10-batches-bin"), CIFAR10_CLASSES),
        (("cifar-10-batches-py/batches.meta",), CIFAR10_CLASSES),
        (("cifar-10-batches-py", "cifar-10-batches-bin/batches.meta.txt"), CIFAR10_CLASSES),
    ],
)
def test_reads_every_layout_alike(folder: Path, gone: tuple[str, ...], classes: tuple[str, ...]) -> None:
    remove(folder, *gone)
    train, test = read_cifar10(folder, "train"), read_cifar10(folder, "test")
    check(train, BATCHES)
    check(test, ["test_batch"])
    assert (train.name, test.name) == ("cifar10:train", "cifar10:test")
    assert train.classes == test.classes == classes


@pytest.mark.parametrize("gone", [(), ("cifar-100-python",)])
def test_reads_fine_labels(folder: Path, gone: tuple[str, ...]) -> None:
    remove(folder, *gone)
    for split in ("train", "test"):
        read = read_cifar100(folder, split)
        assert read.name == f"cifar100:{split}"
        assert torch.equal(read.images, torch.from_numpy(PIXELS["data_batch_1"]))
        assert read.labels is not None
        assert read.labels.tolist() == FINE
        assert read.classes == tuple(HUNDRED)


@pytest.mark.parametrize("wanted", ["python", "binary", "png"])
def test_prefers_python_to_binary_to_png(folder: Path, wanted: str) -> None:
    homes = {"python": "cifar-10-batches-py", "binary": "cifar-10-batches-bin", "png": "package"}
    order = list(homes)
    remove(folder, *(homes[layout] for layout in order[: order.index(wanted)]))
    for layout in order[order.index(wanted) + 1 :]:
        for file in (folder / homes[layout]).iterdir():
            file.write_bytes(b"damaged")
    check(read_cifar10(folder, "train"), BATCHES)


def refused(path: Path, folder: Path, split: str = "train", read: Callable = read_cifar10) -> str:
    with pytest.raises(ProodError, match="fetch the set again") as caught:
        read(folder, split)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def only(folder: Path, layout: str) -> Path:
    """The home of this layout, after the preferred ones went away."""
    homes = ["cifar-10-batches-py", "cifar-10-batches-bin", "package"]
    remove(folder, *homes[: homes.index(layout)])
    return folder / layout


def test_refuses_an_empty_or_missing_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        refused(folder, folder)
        refused(folder, folder, read=read_cifar100)


@pytest.mark.parametrize(
    ("layout", "file"),
    [
        ("cifar-10-batches-py", "data_batch_3"),
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


@pytest.mark.parametrize(
    "change",
    [
        {b"labels": [1, 2]},
        {b"labels": [1, 2, 10]},
        {b"labels": [1, 2, -1]},
        {b"labels": [1, 2, None]},
        {b"labels": [1, 2, True]},
        {b"labels": b"123"},
        {b"labels": []},
        {b"data": np.zeros((3, 3071), np.uint8)},
        {b"data": np.zeros(3, np.uint8)},
        {b"data": [1, 2, 3]},
    ],
)
def test_refuses_wrong_python_batches(folder: Path, python2: Writer, change: dict) -> None:
    path = folder / "cifar-10-batches-py" / "data_batch_1"
    path.write_bytes(python2({b"data": PIXELS["data_batch_1"].reshape(-1, 3072), b"labels": [0, 9, 1]} | change))
    refused(path, folder)


def test_refuses_wrong_labels_in_the_other_layouts(folder: Path) -> None:
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


def test_refuses_wrong_names(folder: Path, python2: Writer) -> None:
    path = folder / "cifar-10-batches-py" / "batches.meta"
    for content in ({b"label_names": [b"one"]}, {b"names": [b"a"] * 10}, {b"label_names": [1] * 10}):
        path.write_bytes(python2(content))
        refused(path, folder)
    path = folder / "cifar-100-python" / "meta"
    path.unlink()
    assert "there is no file" in refused(path, folder, "test", read_cifar100)
    remove(folder, "cifar-100-python")
    path = folder / "cifar-100-binary" / "fine_label_names.txt"
    path.write_text("apple\n")
    assert "1 classes instead of 100" in refused(path, folder, "test", read_cifar100)
