import io
import multiprocessing
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import StoredSet
from prood.data.formats.pictures import decode, fit
from prood.data.public.lsun import LmdbReader, _reading
from prood.errors import BadValue, Damaged, MissingPackage, NotFound

SHAPE = (3, 16, 16)


def pictures(count: int = 5) -> dict[str, bytes]:
    """By key, not in the order of the keys; WebP as in LSUN, and one JPEG."""
    random = np.random.default_rng(0)
    found = {}
    for number in reversed(range(count)):
        out = io.BytesIO()
        image = Image.fromarray(random.integers(0, 256, (30, 40, 3), dtype=np.uint8))
        image.save(out, "JPEG" if number == 1 else "WEBP")
        found[f"{number:02d}f0a"] = out.getvalue()
    return found


def save(folder: Path, entries: dict[str, bytes]) -> Path:
    with lmdb.open(str(folder), map_size=2**24) as environment, environment.begin(write=True) as transaction:
        for key, value in entries.items():
            transaction.put(key.encode(), value)
    return folder


def test_reads_the_pictures_in_the_order_of_their_keys(tmp_path: Path) -> None:
    entries = pictures()
    reader = LmdbReader(save(tmp_path / "val_lmdb", entries), SHAPE)
    expected = torch.stack([fit(decode(entries[key]), SHAPE) for key in sorted(entries)])
    assert len(reader) == 5
    assert torch.equal(StoredSet("some", reader, SHAPE).load().images, expected)
    other = LmdbReader(tmp_path / "val_lmdb", (1, 8, 8))
    assert other.read(4).shape == (1, 8, 8)
    assert torch.equal(pickle.loads(pickle.dumps(reader)).read(3), expected[3])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_the_same(tmp_path: Path, method: str) -> None:
    reader = LmdbReader(save(tmp_path / "val_lmdb", pictures()), SHAPE)
    here = reader.read(2)  # so that the folder is open when the other process starts
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        assert torch.equal(pool.submit(reader.read, 2).result(60), here)


def test_two_readers_may_read_at_once(tmp_path: Path) -> None:
    first, second = (LmdbReader(save(tmp_path / "val_lmdb", pictures()), shape) for shape in (SHAPE, (1, 8, 8)))
    with _reading(first.folder):
        assert second.read(1).shape == (1, 8, 8)


def test_the_fingerprint_sees_keys_and_size(tmp_path: Path) -> None:
    entries = pictures()
    mark = LmdbReader(save(tmp_path / "a", entries), SHAPE).fingerprint()
    assert LmdbReader(save(tmp_path / "b", entries), (3, 8, 8)).fingerprint() == mark
    renamed = {key.replace("f", "e"): value for key, value in entries.items()}
    assert LmdbReader(save(tmp_path / "c", renamed), SHAPE).fingerprint() != mark
    assert LmdbReader(save(tmp_path / "d", entries | {"00f0a": b"x" * 20_000}), SHAPE).fingerprint() != mark


def test_an_entry_that_is_no_picture_is_refused_by_its_key(tmp_path: Path) -> None:
    entries = pictures()
    entries["02f0a"] = entries["02f0a"][:100]
    folder = save(tmp_path / "val_lmdb", entries)
    reader = LmdbReader(folder, SHAPE)
    assert reader.read(1).shape == SHAPE
    with pytest.raises(Damaged, match=rf"02f0a.*{folder}"):
        reader.read(2)


def test_a_damaged_or_missing_folder_is_refused(tmp_path: Path) -> None:
    whole = (save(tmp_path / "whole", pictures()) / "data.mdb").read_bytes()
    for length in (0, 1, 100, 4096, 8192, 9000, len(whole) // 2, len(whole) - 1):
        folder = tmp_path / f"cut{length}"
        folder.mkdir()
        (folder / "data.mdb").write_bytes(whole[:length])
        with pytest.raises(Damaged):
            StoredSet("some", LmdbReader(folder, SHAPE), SHAPE)
        assert list(folder.iterdir()) == [folder / "data.mdb"]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "data.mdb").write_text("not lmdb" * 9999)
    with pytest.raises(Damaged):
        len(LmdbReader(tmp_path / "text", SHAPE))
    with pytest.raises(NotFound, match=r"gone/data\.mdb"):
        len(LmdbReader(tmp_path / "gone", SHAPE))
    with pytest.raises(BadValue):
        StoredSet("some", LmdbReader(save(tmp_path / "empty", {}), SHAPE), SHAPE)


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "val_lmdb", pictures())
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(MissingPackage, match=r"'\.\[data\]'"):
        len(LmdbReader(folder, SHAPE))
