import io
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import find
from prood.data.formats.pictures import decode, fit
from prood.data.public.known import read_pictures
from prood.data.public.lsun import lsun_classroom
from prood.errors import Damaged

TREES = [
    (partial(read_pictures, "lsun-crop"), "lsun-crop", "LSUN/test", (36, 36), (3, 32, 32)),
    (partial(read_pictures, "lsun-resize"), "lsun-resize", "LSUN_resize/LSUN_resize", (32, 32), (3, 32, 32)),
    (partial(read_pictures, "isun"), "isun", "iSUN/iSUN_patches", (32, 32), (3, 32, 32)),
    (partial(read_pictures, "places365"), "places365", "val_256", (256, 256), (3, 224, 224)),
]


def save(folder: Path, size: tuple[int, int], count: int = 3) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(count):
        ending = "png" if number else "jpg"
        image = Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
        image.save(folder / f"{number:04d}.{ending}")


@pytest.mark.parametrize(("read", "name", "place", "size", "shape"), TREES)
def test_reads_a_tree_in_its_published_place(
    tmp_path: Path, read: Callable, name: str, place: str, size: tuple, shape: tuple
) -> None:
    with pytest.raises(Damaged):
        read(tmp_path, "test", None)
    save(tmp_path / place, size)
    found = read(tmp_path, "test", None)
    assert found.name == f"{name}:test"
    assert found.labels is None
    assert found.shape == shape
    images = found.load().images
    assert images.shape == (3, *shape)
    whole = torch.from_numpy(np.array(Image.open(tmp_path / place / "0001.png"))).permute(2, 0, 1)
    if name == "places365":
        assert torch.equal(images[1], fit(decode(tmp_path / place / "0001.png"), shape))
    else:
        edge = (size[0] - 32) // 2
        assert torch.equal(images[1], whole[:, edge : edge + 32, edge : edge + 32])
    assert read(tmp_path, "test", (1, 28, 28)).load().shape == (1, 28, 28)
    bad = tmp_path / place / "0002.png"
    bad.write_bytes(bad.read_bytes()[:100])
    with pytest.raises(Damaged, match=str(bad)):
        read(tmp_path, "test", None).load()


def test_reads_the_lmdb_of_classrooms(tmp_path: Path) -> None:
    pictures = []
    random = np.random.default_rng(0)
    with lmdb.open(str(tmp_path / "classroom_val_lmdb")) as environment, environment.begin(write=True) as transaction:
        for number in range(4):
            out = io.BytesIO()
            image = Image.fromarray(random.integers(0, 256, (300, 256, 3), dtype=np.uint8))
            image.save(out, "WEBP")
            pictures.append(out.getvalue())
            transaction.put(f"{number:040x}".encode(), out.getvalue())
    own, small = lsun_classroom(tmp_path, "test"), lsun_classroom(tmp_path, "test", (3, 32, 32))
    assert own.name == "lsun-classroom:test"
    assert own.shape == (3, 224, 224)
    assert torch.equal(own.load().images, torch.stack([fit(decode(p), (3, 224, 224)) for p in pictures]))
    assert torch.equal(small.take([3, 1])[0], fit(decode(pictures[3]), (3, 32, 32)))


@pytest.mark.parametrize("name", ["lsun-classroom", "lsun-crop", "lsun-resize", "isun", "places365"])
def test_can_be_fetched_and_says_how_much_there_is(name: str) -> None:
    about = find(name).public
    assert about is not None
    assert about.facts["test"].count > 0
    assert about.downloads[0].file.endswith((".zip", ".tar", ".tar.gz"))
    assert about.how_to_get(name) == f"fetch it with 'prood data fetch {name}'"
