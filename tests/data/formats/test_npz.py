import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prood.data import load, read_npz
from prood.errors import Damaged, NotFound, ProodError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3, 5, 6), dtype=np.uint8)
LABELS = np.array([0, 2, 1, 2])


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def test_reads_every_layout_alike(tmp_path: Path) -> None:
    first = read_npz(save(tmp_path / "first.npz", images=PIXELS))
    last = read_npz(save(tmp_path / "last.npz", images=PIXELS.transpose(0, 2, 3, 1)))
    assert torch.equal(first.images, torch.from_numpy(PIXELS))
    assert torch.equal(last.images, first.images)
    grey = [
        read_npz(save(tmp_path / f"{i}.npz", images=images)).images
        for i, images in enumerate([PIXELS[:, 0], PIXELS[:, :1], PIXELS[:, 0, :, :, None]])
    ]
    assert all(torch.equal(images, first.images[:, :1]) for images in grey)
    assert first.labels is None


@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(np.uint8), LABELS[:, None], LABELS.astype(">i4")])
def test_reads_labels_of_any_integer_type(tmp_path: Path, labels: np.ndarray) -> None:
    read = load(f"npz:{save(tmp_path / 'a.npz', images=PIXELS, labels=labels)}")
    assert read.labels is not None
    assert read.labels.tolist() == LABELS.tolist()
    assert read.name == f"npz:{tmp_path / 'a.npz'}"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": PIXELS}, "cannot read images from"),
        ({"images": PIXELS / 255}, "type float64"),
        ({"images": PIXELS[0, 0]}, r"shape \(5, 6\)"),
        ({"images": PIXELS[:, :2]}, "neither first nor last"),
        ({"images": PIXELS[..., :3]}, "either first or last"),
        ({"images": PIXELS[:0]}, "non-empty"),
        ({"images": PIXELS, "labels": LABELS / 2}, "labels of type float64"),
        ({"images": PIXELS, "labels": LABELS[:2]}, "one label an image"),
        ({"images": PIXELS, "labels": LABELS - 1}, "label -1"),
        ({"images": np.array([{"a": 1}], dtype=object)}, "cannot read images from"),
    ],
)
def test_refuses_other_contents(tmp_path: Path, arrays: dict, message: str) -> None:
    with pytest.raises(ProodError, match=message) as caught:
        read_npz(save(tmp_path / "a.npz", **arrays))
    assert "\n" not in str(caught.value)


def test_refuses_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load(f"npz:{tmp_path / 'missing.npz'}")
    with pytest.raises(NotFound):
        load(f"npz:{tmp_path}")
    with pytest.raises(NotFound):
        load("npz:~no-such-user/images.npz")
    for path in ("x" * 5000, "null\0byte"):
        with pytest.raises(Damaged):
            load(f"npz:{path}")
    np.save(tmp_path / "array.npy", PIXELS)
    (tmp_path / "note.npz").write_text("not an archive")
    (tmp_path / "empty.npz").write_bytes(b"")
    for name in ("array.npy", "note.npz", "empty.npz"):
        with pytest.raises(Damaged, match=r"numpy\.savez"):
            load(f"npz:{tmp_path / name}")


WHOLE = io.BytesIO()
np.savez(WHOLE, images=PIXELS, labels=LABELS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(WHOLE.getvalue()) - 1), st.integers(1, 255), st.booleans())
def test_a_damaged_file_is_refused_or_read_as_it_was(tmp_path: Path, at: int, by: int, cut: bool) -> None:
    damaged = bytearray(WHOLE.getvalue())
    if cut:
        del damaged[at:]
    else:
        damaged[at] ^= by
    path = tmp_path / "damaged.npz"
    path.write_bytes(damaged)
    try:
        read = read_npz(path)
    except ProodError:
        return
    assert not cut
    assert torch.equal(read.images, torch.from_numpy(PIXELS))


def test_an_archive_that_unpacks_to_far_more_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "bomb.npz", images=np.zeros((90, 3, 2048, 1024), np.uint8))
    assert path.stat().st_size < 2**20
    monkeypatch.setattr(np.lib.format, "read_array", pytest.fail)
    with pytest.raises(Damaged, match=r"would unpack to 5[0-9]{2} MiB"):
        read_npz(path)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(NotFound):
        read_npz(tmp_path / "pipe.npz")
