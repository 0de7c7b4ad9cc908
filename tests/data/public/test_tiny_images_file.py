import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.data import Reader
from prood.data.public import tiny_images
from prood.data.public.tiny_images import TinyImages, count_images, read_excluded
from prood.errors import Damaged, NotFound

COUNT = 20
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 3, 32, 32), dtype=np.uint8)
NONE = np.zeros(0, dtype=np.int64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """20 images, written one after the other as MATLAB does."""
    path = tmp_path / "tiny_images.bin"
    path.write_bytes(b"".join(image.transpose(1, 2, 0).tobytes("F") for image in PIXELS))
    return path


@given(st.integers(0, 30), st.integers(1, 30), st.sets(st.integers(0, 70)))
def test_rows_are_the_images_that_are_not_excluded(start: int, length: int, excluded: set[int]) -> None:
    reader = TinyImages(Path("none"), start, start + length, np.array(sorted(excluded), dtype=np.int64))
    kept = [index for index in range(start, start + length) if index not in excluded]
    assert [reader.index(row) for row in range(len(reader))] == kept


def test_reads_the_images_as_they_were(path: Path) -> None:
    reader: Reader = TinyImages(path, 5, COUNT, np.array([3, 5, 9]))
    kept = [6, 7, 8, *range(10, COUNT)]
    assert len(reader) == len(kept)
    for row, index in enumerate(kept):
        assert torch.equal(reader.read(row), torch.from_numpy(PIXELS[index]))


def test_a_copy_for_another_process_is_small_and_reads_the_same(path: Path) -> None:
    reader = TinyImages(path, 0, COUNT, np.array([0]))
    reader.read(0)
    data = pickle.dumps(reader)
    assert len(data) < 2000 < path.stat().st_size
    assert torch.equal(pickle.loads(data).read(4), torch.from_numpy(PIXELS[5]))


def test_the_file_is_opened_once_and_late(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    memmap = np.memmap
    monkeypatch.setattr(tiny_images.np, "memmap", lambda *a, **k: opened.append(1) or memmap(*a, **k))
    reader = TinyImages(path, 0, COUNT, NONE)
    assert len(reader) == COUNT
    assert not opened
    for row in (3, 1, 3):
        reader.read(row)
    reader.fingerprint()
    assert opened == [1]


def test_what_was_read_is_a_copy(path: Path) -> None:
    reader = TinyImages(path, 0, COUNT, NONE)
    reader.read(2).zero_()
    assert torch.equal(reader.read(2), torch.from_numpy(PIXELS[2]))


def test_the_fingerprint_changes_with_the_set_and_not_with_the_place(path: Path) -> None:
    other = path.with_name("copy.bin")
    other.write_bytes(path.read_bytes())
    first = TinyImages(path, 0, COUNT, NONE).fingerprint()
    assert TinyImages(other, 0, COUNT, NONE).fingerprint() == first
    damaged = bytearray(path.read_bytes())
    damaged[5000] ^= 1
    other.write_bytes(damaged)
    others = [
        TinyImages(other, 0, COUNT, NONE),
        TinyImages(path, 0, COUNT - 1, NONE),
        TinyImages(path, 1, COUNT, NONE),
        TinyImages(path, 0, COUNT, np.array([4])),
    ]
    assert len({first, *(reader.fingerprint() for reader in others)}) == 5


def test_refuses_a_missing_truncated_or_shrunken_file(path: Path) -> None:
    assert count_images(path) == COUNT
    reader = TinyImages(path, 0, COUNT, NONE)
    path.write_bytes(path.read_bytes()[: -3072 * 3])
    with pytest.raises(Damaged, match="20"):
        reader.read(0)
    for data in (b"", path.read_bytes()[:-1]):
        path.write_bytes(data)
        with pytest.raises(Damaged, match=rf"tiny_images\.bin.*{len(data)}"):
            count_images(path)
    path.unlink()
    for call in (lambda: count_images(path), lambda: reader.read(0)):
        with pytest.raises(NotFound):
            call()


def test_lists_count_from_1_and_0_stands_for_no_image(tmp_path: Path) -> None:
    first, second = tmp_path / "a_cifar_idxs.txt", tmp_path / "b_cifar_idxs.txt"
    first.write_text("7\n0\n20\n1\n0\n")
    second.write_text(" 7\r\n3")
    assert read_excluded([first, second], COUNT).tolist() == [0, 2, 6, 19]
    assert read_excluded([], COUNT).tolist() == []


@pytest.mark.parametrize("line", ["21", "-1", "1.0", "", "one", "9" * 30, "9" * 5000, "1 2"])
def test_refuses_a_line_that_is_no_index(tmp_path: Path, line: str) -> None:
    path = tmp_path / "cifar_idxs.txt"
    path.write_text(f"1\n{line}\n2\n")
    with pytest.raises(Damaged, match=r"cifar_idxs\.txt") as caught:
        read_excluded([path], COUNT)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_refuses_a_list_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "cifar_idxs.txt"
    path.write_bytes(b"\xff\x00")
    with pytest.raises(Damaged, match=r"cifar_idxs\.txt"):
        read_excluded([path], COUNT)
    with pytest.raises(Damaged):
        read_excluded([tmp_path / "none"], COUNT)
