from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from prood.data import find, load
from prood.data.public.labelled import svhn
from prood.errors import Damaged, NotFound

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
DIGITS = np.array([1, 9, 10, 10, 2, 3, 4, 5, 6, 7, 8, 1], dtype=np.uint8)
X = PIXELS.transpose(2, 3, 1, 0)


def write(folder: Path, split: str = "test", **variables: object) -> Path:
    path = folder / f"{split}_32x32.mat"
    savemat(path, {"X": X, "y": DIGITS[:, None]} | variables, do_compression=True)
    return path


def test_reads_images_and_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOD_DATA", str(tmp_path))
    (tmp_path / "svhn").mkdir()
    write(tmp_path / "svhn", "train", X=X[..., :5], y=DIGITS[:5, None])
    write(tmp_path / "svhn")
    train, test = load("svhn:train"), load("svhn:test", like=load("digits:test"))
    assert (train.name, test.name) == ("svhn:train", "svhn:test")
    assert torch.equal(train.images, torch.from_numpy(PIXELS[:5]))
    assert torch.equal(test.images, torch.from_numpy(PIXELS))
    assert test.labels is not None
    assert test.labels.tolist() == [1, 9, 0, 0, 2, 3, 4, 5, 6, 7, 8, 1]
    assert test.classes == tuple("0123456789")


@pytest.mark.parametrize(
    "wrong",
    [
        {"X": X.astype(np.float64)},
        {"X": X[:31]},
        {"X": X[..., 0]},
        {"X": PIXELS},
        {"X": X[..., :11]},
        {"X": X[..., :0], "y": DIGITS[:0, None]},
        {"y": DIGITS[:11, None]},
        {"y": DIGITS[:, None] - 1},
        {"y": DIGITS[:, None] + 1},
        {"y": DIGITS[:, None] * 0.5},
        {"y": np.full((12, 1), np.nan)},
        {"y": "123456789012"},
    ],
)
def test_refuses_other_contents(tmp_path: Path, wrong: dict) -> None:
    path = write(tmp_path, **wrong)
    with pytest.raises(Damaged) as caught:
        svhn(tmp_path, "test")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_refuses_missing_and_truncated_files(tmp_path: Path) -> None:
    path = write(tmp_path)
    whole = path.read_bytes()
    for size in (0, 100, 128, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(Damaged, match=r"test_32x32\.mat"):
            svhn(tmp_path, "test")
    path.unlink()
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(NotFound, match=r"test_32x32\.mat"):
            svhn(folder, "test")


def test_knows_what_is_published() -> None:
    about = find("svhn").public
    assert about is not None
    for facts in about.facts.values():
        assert facts.per_class is not None
        assert sum(facts.per_class) == facts.count
    assert about.bytes == sum(download.bytes for download in about.downloads)
    assert [download.file for download in about.downloads] == ["train_32x32.mat", "test_32x32.mat"]
