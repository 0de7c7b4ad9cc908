from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import bundled as photographs
from prood.data import generator, load
from prood.data.bundled import bundled
from prood.errors import Damaged

COUNTS = {
    "photographs:train": 8000,
    "photographs:validation": 1000,
    "photographs:test": 1000,
    "materials:test": 1000,
    "text:test": 1000,
    "faces:test": 100,
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_sets_have_their_size_and_no_constant_or_repeated_image(name: str, count: int) -> None:
    loaded = load(name)
    assert len(loaded) == count
    assert loaded.shape == (1, 28, 28)
    assert loaded.labels is None
    flat = loaded.images.flatten(1)
    assert (flat.amin(1) < flat.amax(1)).all()
    assert len(torch.unique(flat, dim=0)) == count


def test_no_image_is_in_two_sets() -> None:
    everything = [image.numpy().tobytes() for name in COUNTS for image in load(name).images]
    assert len(set(everything)) == sum(COUNTS.values())


def test_no_photograph_is_in_two_sets() -> None:
    groups = [*photographs._PHOTOGRAPHS.values(), photographs._MATERIALS, photographs._TEXT]
    files = [file for group in groups for file in group]
    contents = {bundled(*photographs._place(file)).read_bytes() for file in files}
    assert len(contents) == len(files)
    assert "motorcycle_right.png" not in files  # the scene of motorcycle_left


def test_a_patch_of_a_photograph_of_the_smallest_size_is_the_photograph() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    patch = photographs._patch(Image.fromarray(pixels), generator(0))
    assert np.array_equal(patch[0].numpy(), pixels)


def test_patches_reach_every_corner_at_every_scale() -> None:
    """On a picture whose grey value is the column (or the row), a patch shows its own place and side."""
    column = Image.fromarray(np.tile(np.arange(200, dtype=np.uint8), (150, 1)))
    random = generator(1)
    patches = [photographs._patch(column, random)[0, 14].float() for _ in range(2000)]
    slopes = torch.stack([(patch[20] - patch[7]) / 13 for patch in patches])
    assert slopes.min() == 1
    assert 3.9 <= slopes.max() <= 4.1
    assert min(patch[0] for patch in patches) == 0
    assert max(patch[-1] for patch in patches) == 199


def test_constant_patches_are_drawn_again() -> None:
    pixels = np.zeros((300, 300), np.uint8)
    pixels[:40, :40] = 255
    random = generator(0)
    for _ in range(20):
        assert photographs._patch(Image.fromarray(pixels), random).max() > 0


def test_patches_are_not_all_shrunk_by_one_filter() -> None:
    """A hard edge overshoots under bicubic and Lanczos and never under a box; both must occur."""
    pixels = np.full((200, 200), 100, np.uint8)
    pixels[:, 100:] = 150
    random = generator(0)
    peaks = {int(photographs._patch(Image.fromarray(pixels), random).max()) for _ in range(100)}
    assert 150 in peaks
    assert max(peaks) > 152


def test_every_photograph_lends_as_many_patches() -> None:
    greys = [Image.fromarray(np.tile(np.array([[i, i + 1]], np.uint8), (40, 20))) for i in (0, 100, 200)]
    names = iter(greys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(photographs, "_read", lambda path: next(names))
        made = photographs._patches(("moon.png", "rocket.jpg", "coins.png"), 30)
    assert (made.flatten(1).amax(1) // 100).tolist() == [0, 1, 2] * 10


def test_faces_are_the_first_hundred_of_the_file() -> None:
    pixels = np.load(bundled("skimage", "data", "lfw_subset.npy"), allow_pickle=False)[:100]
    means = load("faces").floats().mean(dim=(1, 2, 3)).double().numpy()
    assert np.abs(means - pixels.mean(axis=(1, 2))).max() < 0.02


@pytest.mark.parametrize("broken", [b"", b"no picture"])
def test_broken_files_are_one_clear_error(broken: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "broken"
    path.write_bytes(broken)
    monkeypatch.setattr(photographs, "bundled", lambda *parts: path)
    with pytest.raises(Damaged):
        photographs.photographs("test")
    with pytest.raises(Damaged):
        photographs.faces("test")


def test_a_truncated_photograph_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "half.png"
    path.write_bytes(bundled("skimage", "data", "coins.png").read_bytes()[:30000])
    monkeypatch.setattr(photographs, "bundled", lambda *parts: path)
    with pytest.raises(Damaged):
        photographs.materials("test")
