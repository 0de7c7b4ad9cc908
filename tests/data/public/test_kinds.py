from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from prood.data.formats.pictures import decode, fit
from prood.data.public.known import aircraft, flowers, read_pictures, textures
from prood.errors import Damaged, NotFound, ProodError


def save(path: Path, size: tuple[int, int] = (50, 40)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(list(path.name.encode()))
    Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(path)
    return path


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def dtd(tmp_path: Path) -> Path:
    names = [f"{kind}/{kind}_{number:04d}.jpg" for kind in ("banded", "zigzagged") for number in (2, 5, 8)]
    for name in names:
        save(tmp_path / "dtd" / "images" / name)
    (tmp_path / "dtd" / "images" / "waffled").mkdir()
    for file, rows in (("train1", (4, 0)), ("val1", (1, 5)), ("test1", (2, 3))):
        write(tmp_path / "dtd" / "labels" / f"{file}.txt", *(names[row] for row in rows))
    return tmp_path


def test_textures_follow_the_published_partition(dtd: Path) -> None:
    found = {split: textures(dtd, split) for split in ("train", "validation", "test")}
    assert list(found["train"].reader.files) == ["zigzagged/zigzagged_0005.jpg", "banded/banded_0002.jpg"]
    assert list(found["validation"].reader.files) == ["banded/banded_0005.jpg", "zigzagged/zigzagged_0008.jpg"]
    assert list(found["test"].reader.files) == ["banded/banded_0008.jpg", "zigzagged/zigzagged_0002.jpg"]
    assert {read.labels for read in found.values()} == {None}
    assert found["test"].shape == (3, 224, 224)
    expected = fit(decode(dtd / "dtd/images/banded/banded_0008.jpg"), (3, 32, 32))
    assert torch.equal(textures(dtd, "test", (3, 32, 32)).take([0])[0], expected)


def test_textures_must_be_complete(dtd: Path) -> None:
    (dtd / "dtd/images/banded/banded_0008.jpg").unlink()
    with pytest.raises(NotFound, match=r"test1\.txt.*banded/banded_0008\.jpg"):
        textures(dtd, "test")
    (dtd / "dtd/labels/val1.txt").write_bytes(b"\xff\xfe")
    (dtd / "dtd/labels/train1.txt").unlink()
    for split in ("validation", "train"):
        with pytest.raises(Damaged):
            textures(dtd, split)


@pytest.fixture
def oxford(tmp_path: Path) -> Path:
    for number in range(1, 10):
        save(tmp_path / "jpg" / f"image_{number:05d}.jpg")
    ids = {"trnid": [[3, 1]], "valid": [[9]], "tstid": [[2, 4, 5, 6]]}
    scipy.io.savemat(tmp_path / "setid.mat", {name: np.array(rows, np.uint16) for name, rows in ids.items()})
    return tmp_path


def test_flowers_count_from_one(oxford: Path) -> None:
    assert list(flowers(oxford, "train").reader.files) == ["image_00003.jpg", "image_00001.jpg"]
    assert list(flowers(oxford, "validation").reader.files) == ["image_00009.jpg"]
    read = flowers(oxford, "test", (3, 16, 16))
    assert read.name == "flowers:test"
    assert read.labels is None
    assert torch.equal(read.take([1])[0], fit(decode(oxford / "jpg/image_00004.jpg"), (3, 16, 16)))


def test_flowers_must_be_complete(oxford: Path) -> None:
    (oxford / "jpg/image_00009.jpg").unlink()
    with pytest.raises(NotFound, match=r"setid\.mat.*image_00009\.jpg"):
        flowers(oxford, "validation")
    whole = (oxford / "setid.mat").read_bytes()
    for ids in (np.array([[1.5]]), np.array([["a"]]), np.array([[np.nan]])):
        scipy.io.savemat(oxford / "setid.mat", {"tstid": ids})
        with pytest.raises(Damaged, match=r"setid\.mat.*'tstid'"):
            flowers(oxford, "test")
    (oxford / "setid.mat").write_bytes(whole[:200])
    with pytest.raises(ProodError, match=r"setid\.mat"):
        flowers(oxford, "test")
    (oxford / "setid.mat").unlink()
    with pytest.raises(ProodError, match=r"setid\.mat"):
        flowers(oxford, "test")


@pytest.fixture
def fgvc(tmp_path: Path) -> Path:
    data = tmp_path / "fgvc-aircraft-2013b" / "data"
    for number, split in ((1025794, "train"), (34309, "val"), (1514522, "test")):
        save(data / "images" / f"{number:07d}.jpg", (60, 50))
        write(data / f"images_{split}.txt", f"{number:07d}")
    return tmp_path


def test_aircraft_have_no_banner(fgvc: Path) -> None:
    read = aircraft(fgvc, "validation", (3, 30, 60))
    assert list(read.reader.files) == ["0034309.jpg"]
    path = fgvc / "fgvc-aircraft-2013b/data/images/0034309.jpg"
    whole = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)
    assert torch.equal(read.take([0])[0], whole[:, :30])
    assert [len(aircraft(fgvc, split)) for split in ("train", "test")] == [1, 1]
    assert aircraft(fgvc, "train").shape == (3, 224, 224)
    path.unlink()
    with pytest.raises(NotFound, match=r"images_val\.txt.*0034309\.jpg"):
        aircraft(fgvc, "validation")


def test_cars_lie_in_two_folders(tmp_path: Path) -> None:
    for name in ("cars_train/00001.jpg", "cars_train/00002.jpg", "cars_test/00001.jpg"):
        save(tmp_path / name)
    assert len(read_pictures("cars", tmp_path, "train")) == 2
    read = read_pictures("cars", tmp_path, "test", (3, 8, 8))
    assert torch.equal(read.take([0])[0], fit(decode(tmp_path / "cars_test/00001.jpg"), (3, 8, 8)))
    bad = tmp_path / "cars_test/00001.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    with pytest.raises(Damaged, match=str(bad)):
        read.load()
    with pytest.raises(Damaged):
        read_pictures("cars", tmp_path / "nowhere", "train")
