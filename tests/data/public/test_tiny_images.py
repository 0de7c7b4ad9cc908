from pathlib import Path

import numpy as np
import pytest
import torch

from prood.data import StoredSet, find, open_set
from prood.data.public.tiny_images import tiny_images
from prood.errors import Damaged, NotFound

COUNT, BOUNDARY = 2600, 2400
# The index of an image stands in its first two bytes.
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, 3072), dtype=np.uint8)
IMAGES[:, 0], IMAGES[:, 1] = np.arange(COUNT) // 256, np.arange(COUNT) % 256


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROOD_DATA", str(tmp_path))
    folder = tmp_path / "tiny-images"
    folder.mkdir()
    (folder / "tiny_images.bin").write_bytes(IMAGES.tobytes())
    (folder / "80mn_cifar_idxs.txt").write_text("2402\n0\n2600\n")
    return folder


def indices(read: StoredSet) -> list[int]:
    # In the file a column follows the other, so the second byte is the pixel below the first.
    images = read.load().images.long()
    return (images[:, 0, 0, 0] * 256 + images[:, 0, 1, 0]).tolist()


def test_train_is_everything_from_the_boundary_on_but_cifar(folder: Path) -> None:
    train = tiny_images(folder, "train", boundary=BOUNDARY)
    assert indices(train) == [index for index in range(BOUNDARY, COUNT) if index not in (2401, 2599)]
    assert train.rows is None
    assert train.labels is None
    assert (train.name, train.shape) == ("tiny-images:train", (3, 32, 32))


def test_test_is_a_fixed_choice_before_the_boundary(folder: Path) -> None:
    first = indices(tiny_images(folder, "test", boundary=BOUNDARY))
    assert len(set(first)) == len(first) == 1000
    assert max(first) < BOUNDARY
    assert first != sorted(first)
    assert indices(tiny_images(folder, "test", boundary=BOUNDARY)) == first
    # It is the same without a list, and with one only the images in it are replaced.
    (folder / "80mn_cifar_idxs.txt").unlink()
    assert indices(tiny_images(folder, "test", boundary=BOUNDARY)) == first
    (folder / "more_cifar_idxs.txt").write_text(f"{first[3] + 1}\n{first[500] + 1}")
    second = indices(tiny_images(folder, "test", boundary=BOUNDARY))
    assert second[:998] == [index for index in first if index not in (first[3], first[500])]
    assert len(set(second)) == 1000


def test_a_short_file_has_a_test_split_only(folder: Path) -> None:
    test = open_set("tiny-images:test")
    assert isinstance(test, StoredSet)
    assert test.name == "tiny-images:test"
    assert len(indices(test)) == 1000
    with pytest.raises(Damaged, match=r"tiny_images\.bin.*2600.*1000000"):
        open_set("tiny-images:train")
    (folder / "80mn_cifar_idxs.txt").write_text("2\n")
    (folder / "tiny_images.bin").write_bytes(IMAGES[:3].tobytes())
    assert sorted(indices(tiny_images(folder, "test"))) == [0, 2]


def test_the_list_is_required_to_train(folder: Path) -> None:
    (folder / "80mn_cifar_idxs.txt").rename(folder / "list.txt")
    with pytest.raises(NotFound, match="CIFAR") as caught:
        tiny_images(folder, "train", boundary=BOUNDARY)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_opening_reads_no_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "memmap", None)
    for split in ("train", "test"):
        assert len(tiny_images(folder, split, boundary=BOUNDARY)) > 0


def test_reads_a_file_as_big_as_the_real_one(folder: Path) -> None:
    """A sparse file takes no room; its last image is the only one that is not black."""
    with (folder / "tiny_images.bin").open("wb") as file:
        try:
            file.seek(79_302_016 * 3072)
            file.write(bytes([9]) * 3072)
        except OSError as error:
            pytest.skip(f"no sparse files here: {error}")
    train = open_set("tiny-images:train")
    assert len(train) == 78_302_017
    assert train.take([0, len(train) - 1]).flatten(1).max(dim=1).values.tolist() == [0, 9]
    assert len(open_set("tiny-images:test")) == 1000
    (folder / "tiny_images.bin").unlink()  # lest anything copies it byte by byte


def test_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOD_DATA", str(tmp_path))
    with pytest.raises(NotFound, match=r"tiny_images\.bin") as caught:
        open_set("tiny-images:train")
    assert str(tmp_path / "tiny-images") in str(caught.value)
    about = find("tiny-images").public
    assert about is not None
    assert about.bytes == 243_615_796_224
    (tmp_path / "tiny-images").mkdir()
    with pytest.raises(NotFound):
        open_set("tiny-images:test")


def test_a_truncated_file_or_a_foreign_list_is_refused(folder: Path) -> None:
    (folder / "80mn_cifar_idxs.txt").write_text("1\n2\nthree\n")
    with pytest.raises(Damaged, match=r"80mn_cifar_idxs\.txt"):
        tiny_images(folder, "train", boundary=BOUNDARY)
    (folder / "tiny_images.bin").write_bytes(IMAGES.tobytes()[:-1])
    with pytest.raises(Damaged):
        tiny_images(folder, "test", boundary=BOUNDARY)


def test_subsets_do_not_hold_all_rows(folder: Path) -> None:
    train = tiny_images(folder, "train", boundary=BOUNDARY)
    few = train.subset(10, seed=1)
    assert few.rows is not None
    assert torch.equal(few.take([3]), train.take(few.rows[3:4]))
