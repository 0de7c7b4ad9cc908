"""OpenOOD's lists in its own layout and in that of pytorch-ood, read as its own preprocessing does."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood import data
from prood.data.public.openood import BENCHMARKS, benchmark, seen_in
from prood.errors import Damaged, NotFound, UnknownName

FAR = ("mnist", "svhn", "texture", "places365")


def picture(path: Path, size: tuple[int, int] = (32, 32), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(str(path.name)) + size[0]).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.fixture
def lists(tmp_path, monkeypatch) -> Path:
    """Two classes of two images, and two images of each out-distribution; `texture` has photographs."""
    monkeypatch.setenv("PROOD_DATA", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    root, lists = tmp_path / "openood" / "images_classic", tmp_path / "openood" / "benchmark_imglist" / "cifar10"
    lists.mkdir(parents=True)
    inside = [
        f"cifar10/test/{name}/{number}.png {label}" for label, name in enumerate(("cat", "dog")) for number in "01"
    ]
    (lists / "test_cifar10.txt").write_text("\n".join(inside) + "\n")
    for line in inside:
        picture(root / line.split()[0])
    for name in ("cifar100", "tin", *FAR):
        rows = [f"{name}/test/{number}.png -1" for number in "01"]
        (lists / f"test_{name}.txt").write_text("\n".join(rows) + "\n")
        sizes = {"mnist": (28, 28), "texture": (50, 40), "tin": (64, 64)}
        for row in rows:
            picture(root / row.split()[0], sizes.get(name, (32, 32)), "L" if name == "mnist" else "RGB")
    return tmp_path / "openood"


def test_the_in_distribution_has_labels_and_names(lists):
    found = data.load("openood-cifar10:test")
    assert (found.labels.tolist(), found.classes) == ([0, 0, 1, 1], ("cat", "dog"))
    with Image.open(lists / "images_classic" / "cifar10" / "test" / "dog" / "1.png") as image:
        assert np.array_equal(found.images[3].permute(1, 2, 0).numpy(), np.asarray(image))


def test_every_out_distribution_is_a_set_of_colour_images(lists):
    names = BENCHMARKS["openood-cifar10"].outside
    assert names == tuple(f"openood-cifar10:{name}" for name in ("cifar100", "tin", *FAR))
    for name in names:
        found = data.load(name)
        assert (tuple(found.images.shape), found.labels) == ((2, 3, 32, 32), None), name
    grey = data.load("openood-cifar10:mnist").images
    assert torch.equal(grey[:, 0], grey[:, 2])


@pytest.mark.parametrize("size", [(50, 40), (40, 50), (33, 97), (64, 64), (20, 31)])
def test_other_sizes_are_resized_by_the_shorter_side_and_cut(lists, size):
    """What torchvision's Resize(32) and CenterCrop(32) do to Pillow images, written out."""
    path = lists / "images_classic" / "texture" / "test" / "0.png"
    picture(path, size)
    with Image.open(path) as image:
        width, height = image.size
        wide, high = (32, int(32 * height / width)) if width <= height else (int(32 * width / height), 32)
        resized = np.asarray(image.resize((wide, high), Image.Resampling.BILINEAR))
    top, left = round((high - 32) / 2.0), round((wide - 32) / 2.0)
    expected = resized[top : top + 32, left : left + 32]
    found = data.load("openood-cifar10:texture").images[0].permute(1, 2, 0).numpy()
    assert np.array_equal(found, expected)


def test_the_layout_of_pytorch_ood(lists, tmp_path):
    """Its images lie in the root itself, and its lists in torch's folder."""
    expected = data.load("openood-cifar10:svhn").images
    cache = tmp_path / "torch" / "hub" / "openood_benchmark_imglist"
    cache.mkdir(parents=True)
    (lists / "benchmark_imglist").rename(cache / "benchmark_imglist")
    for folder in list((lists / "images_classic").iterdir()):
        folder.rename(lists / folder.name)
    (lists / "images_classic").rmdir()
    assert torch.equal(data.load("openood-cifar10:svhn").images, expected)


def test_what_is_missing_or_damaged_is_named(lists):
    def rewritten(text: str) -> None:
        (lists / "benchmark_imglist" / "cifar10" / "test_svhn.txt").write_text(text)

    for text, kind, match in (
        ("", Damaged, "empty"),
        ("svhn/test/0.png\n", Damaged, "imglist"),
        ("svhn/test/0.png x\n", Damaged, "imglist"),
        ("../secret.png -1\n", Damaged, "outside"),
        ("/etc/secret.png -1\n", Damaged, "outside"),
        ("svhn/test/0.png -1\nsvhn/test/9.png -1\n", NotFound, r"9\.png \(1 missing of 2\)"),
    ):
        rewritten(text)
        (lists / f"changed-{len(list(lists.iterdir()))}").touch()  # a set is read anew when its folder has changed
        with pytest.raises(kind, match=match) as caught:
            data.load("openood-cifar10:svhn")
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(Damaged, match="test_cifar10"):
        data.load("openood-cifar100:cifar10")


def test_absent_sets_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PROOD_DATA", str(tmp_path))
    with pytest.raises(NotFound, match="pytorch-ood"):
        data.load("openood-cifar100:tin")
    with pytest.raises(UnknownName, match="openood-cifar100"):
        benchmark("openood-imagenet")


def test_kinds_that_training_saw_are_known_by_any_name():
    trained = ["cifar10:train", "cifar100:train", "mosaic:/data/natural32/train", "folder:/home/svhn"]
    assert seen_in("openood-cifar10:cifar100", trained) == ["cifar100:train"]
    assert seen_in("openood-cifar10:tin", trained) == ["mosaic:/data/natural32/train"]
    assert seen_in("openood-cifar10:places365", trained) == ["mosaic:/data/natural32/train"]
    assert seen_in("openood-cifar10:svhn", trained) == ["folder:/home/svhn"]
    assert seen_in("openood-cifar10:mnist", trained) == seen_in("svhn", trained) == []
