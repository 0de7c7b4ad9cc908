import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import StoredSet, find, names, open_set
from prood.data.formats.pictures import decode, fit
from prood.data.public.known import GROUPS, not_rimgnet, rimgnet
from prood.errors import Damaged, NotFound

# Not the real ids; like them, they are in no order of their own until sorted.
IDS = [f"n{1440764 + 7919 * number:08d}" for number in range(1000)]
EDGES = {0: "dog", 1: "cat", 2: "frog", 3: "turtle", 4: "bird", 5: "primate", 6: "fish", 7: "crab", 8: "insect"}


def save(root: Path, number: int, name: str) -> None:
    random = np.random.default_rng([number, *name.encode()])
    image = Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8))
    image.save(root / IDS[number] / f"{IDS[number]}_{name}.JPEG")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A picture in the first and the last class of each group, and one on either side."""
    folder = tmp_path / "imagenet"
    for split in ("train", "val"):
        for wnid in reversed(IDS):
            (folder / split / wnid).mkdir(parents=True)
        for first, last in GROUPS.values():
            for number in {first - 1, first, last, last + 1}:
                save(folder / split, number, "1")
    (folder / "val" / "devkit").mkdir()
    return folder


def numbers(read: StoredSet) -> list[int]:
    return [IDS.index(file.split("/")[0]) for file in read.reader.files]


@pytest.mark.parametrize("split", ["train", "test"])
def test_classes_belong_to_their_groups(folder: Path, split: str) -> None:
    read = rimgnet(folder, split, (3, 16, 16))
    assert read.name == f"rimgnet:{split}"
    assert read.classes == tuple(EDGES.values())
    assert read.labels is not None
    expected = {}
    for label, (first, last) in enumerate(GROUPS.values()):
        expected |= {first: label, last: label}
    assert dict(zip(numbers(read), read.labels.tolist(), strict=True)) == expected
    root = folder / ("val" if split == "test" else "train")
    assert torch.equal(read.take([3])[0], fit(decode(root / read.reader.files[3]), (3, 16, 16)))


def test_the_other_half_is_the_rest(folder: Path) -> None:
    rest = not_rimgnet(folder, "test", None)
    assert rest.labels is None
    assert rest.shape == (3, 224, 224)
    edges = {number for first, last in GROUPS.values() for number in (first - 1, last + 1)}
    inside = set(numbers(rimgnet(folder, "test")))
    assert set(numbers(rest)) == edges - inside
    assert len(rest) + len(inside) == len(list((folder / "val").rglob("*.JPEG")))


def test_the_groups_have_the_published_sizes() -> None:
    sizes = [50 * (last - first + 1) for first, last in GROUPS.values()]
    about = find("rimgnet").public
    assert about is not None
    facts = about.facts["test"]
    assert list(facts.per_class or ()) == sizes
    assert facts.count == sum(sizes) == 50_000 - 39_850
    assert about.folder == "imagenet"


@pytest.mark.parametrize("read", [rimgnet, not_rimgnet])
def test_refuses_anything_but_a_thousand_classes(folder: Path, read: object) -> None:
    shutil.rmtree(folder / "val" / IDS[500])
    with pytest.raises(Damaged, match=r"999.*n01440764.*1,000"):
        read(folder, "test", None)
    (folder / "val" / IDS[500]).mkdir()
    (folder / "val" / "n99999999").mkdir()
    with pytest.raises(Damaged, match="1001"):
        read(folder, "test", None)
    (folder / "train").rename(folder / "elsewhere")
    with pytest.raises(Damaged):
        read(folder, "train", None)


def test_a_damaged_picture_is_refused_by_name(folder: Path) -> None:
    bad = folder / "val" / IDS[30] / f"{IDS[30]}_1.JPEG"
    bad.write_bytes(bad.read_bytes()[:200])
    with pytest.raises(Damaged, match=str(bad)):
        rimgnet(folder, "test", (3, 8, 8)).load()


def test_both_are_found_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOD_DATA", str(folder.parent))
    assert len(open_set("rimgnet:train")) == 18
    assert open_set("not-rimgnet:test").name == "not-rimgnet:test"
    monkeypatch.setenv("PROOD_DATA", str(folder / "nowhere"))
    with pytest.raises(NotFound, match=r"'rimgnet'.*https://image-net\.org"):
        open_set("rimgnet:train")
    assert {"rimgnet", "not-rimgnet"} <= {source.name for source in names()}
