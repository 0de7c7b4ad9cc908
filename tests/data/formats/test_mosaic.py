import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import load
from prood.errors import NotFound, ProodError

SHARED = (Path(__file__).parents[3] / "../shared/data").resolve()
# Tiles of one colour each and one that is not, so that a tile that is turned or mixed with others is seen.
COLOURS = np.random.default_rng(0).integers(1, 256, (250, 3, 1, 1), dtype=np.uint8)
TILES = np.broadcast_to(COLOURS, (250, 3, 32, 32)).copy()
TILES[7] = np.random.default_rng(1).integers(0, 256, (3, 32, 32), dtype=np.uint8)


def write(path: Path, tiles: np.ndarray) -> None:
    """A sheet, 100 tiles a row, the rest of the last row black."""
    sheet = np.zeros((-(-len(tiles) // 100) * 32, 3200, 3), dtype=np.uint8)
    for number, tile in enumerate(tiles):
        top, left = 32 * (number // 100), 32 * (number % 100)
        sheet[top : top + 32, left : left + 32] = tile.transpose(1, 2, 0)
    Image.fromarray(sheet).save(path, "WEBP", lossless=True, quality=0, method=0)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of 250 images on two sheets, with labels and names."""
    folder = tmp_path_factory.mktemp("written")
    write(folder / "test-00.webp", TILES[:200])
    write(folder / "test-01.webp", TILES[200:])
    np.save(folder / "test-labels.npy", np.arange(250) % 3)
    (folder / "classes.txt").write_text("one\ntwo words\ndrei Wörter\n", encoding="utf-8")
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "set"))


def test_reads_tiles_labels_and_names(folder: Path) -> None:
    read = load(f"mosaic:{folder}/test")
    assert read.name == f"mosaic:{folder}/test"
    assert torch.equal(read.images, torch.from_numpy(TILES))
    assert read.labels is not None
    assert read.labels.tolist() == [number % 3 for number in range(250)]
    assert read.classes == ("one", "two words", "drei Wörter")


def test_labels_and_names_may_be_missing_and_padding_is_left_out(folder: Path) -> None:
    (folder / "classes.txt").unlink()
    assert load(f"mosaic:{folder}/test").classes is None
    (folder / "test-labels.npy").unlink()
    read = load(f"mosaic:{folder}/test", like=load("digits:test"))
    assert torch.equal(read.images, torch.from_numpy(TILES))
    assert read.labels is None


def test_black_images_that_have_labels_are_no_padding(folder: Path) -> None:
    np.save(folder / "test-labels.npy", np.zeros(253, dtype=np.uint8))
    read = load(f"mosaic:{folder}/test")
    assert len(read) == 253
    assert not read.images[250:].any()


def test_other_splits_do_not_count(folder: Path) -> None:
    write(folder / "test-more-00.webp", TILES[:1])
    write(folder / "test-02.webp.part", TILES[:1])
    assert len(load(f"mosaic:{folder}/test")) == 250
    assert len(load(f"mosaic:{folder}/test-more")) == 1


def refused(folder: Path, named: str) -> str:
    with pytest.raises(ProodError) as caught:
        load(f"mosaic:{folder}/test")
    assert str(folder / named) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_refuses_missing_sheets(folder: Path) -> None:
    with pytest.raises(NotFound, match=r"train-00\.webp"):
        load(f"mosaic:{folder}/train")
    (folder / "test-00.webp").rename(folder / "test-02.webp")
    refused(folder, "test-00.webp")
    (folder / "test-01.webp").rename(folder / "test-00.webp")
    refused(folder, "test-01.webp")
    for path in (folder / "none" / "test", folder / "classes.txt" / "test", "null\0byte", "x" * 5000, "/"):
        with pytest.raises(ProodError, match="mosaic:FOLDER/SPLIT"):
            load(f"mosaic:{path}")


def test_refuses_damaged_sheets(folder: Path) -> None:
    path = folder / "test-01.webp"
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole[: len(whole) // 2], b"x" * 100):
        path.write_bytes(damaged)
        refused(folder, path.name)
    for size in ((3200, 33), (3168, 32), (32, 32)):
        Image.new("RGB", size).save(path, "WEBP", lossless=True)
        assert f"{size[0]} × {size[1]}" in refused(folder, path.name)
    # What Pillow can read is not enough: other formats may be lossy, or bombs.
    Image.new("RGB", (3200, 32)).save(path, "PNG")
    refused(folder, path.name)


def test_refuses_wrong_labels(folder: Path) -> None:
    path = folder / "test-labels.npy"
    for labels in (np.zeros(301, int), np.zeros(249, int), np.zeros(250), np.zeros((250, 1), int)):
        np.save(path, labels)
        refused(folder, path.name)
    np.save(path, np.array([{}] * 250, dtype=object), allow_pickle=True)
    assert "ValueError" in refused(folder, path.name)  # NumPy's own refusal, before anything is unpickled
    np.save(path, np.full(250, 3))
    assert "names 3 classes" in refused(folder, "test")
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:50], b"x" * 300):
        path.write_bytes(damaged)
        refused(folder, path.name)
    np.save(path, np.zeros(250, int))
    (folder / "classes.txt").write_bytes(b"\xff\xfe\xff")
    refused(folder, "classes.txt")


def test_refuses_black_sheets(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    write(folder / "test-00.webp", np.zeros((1, 3, 32, 32), np.uint8))
    assert "all black" in refused(folder, "test")


def test_pillow_still_guards_against_bombs(folder: Path) -> None:
    before = Image.MAX_IMAGE_PIXELS
    load(f"mosaic:{folder}/test")
    assert Image.MAX_IMAGE_PIXELS == before is not None


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of real images is not beside the repository")
def test_reads_real_mosaics() -> None:
    cifar = load(f"mosaic:{SHARED}/cifar100/test")
    assert cifar.labels is not None
    assert cifar.classes is not None
    assert cifar.labels.bincount().tolist() == [100] * 100
    assert len(cifar.classes) == 100
    assert cifar.classes[0] == "apple"
    assert len(load(f"mosaic:{SHARED}/textures/test")) == 1200
