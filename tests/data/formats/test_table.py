from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import StoredSet, load, open_set
from prood.data.formats.pictures import decode, fit
from prood.data.formats.table import read_csv
from prood.errors import BadValue, Damaged, NoAccess, NotFound, ProodError, Unsupported

NAMES = ("a/one.png", "a/two.jpg", "b/three.png", "four.png")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for number, name in enumerate(NAMES):
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (10 + number, 12, 3), dtype=np.uint8)).save(path)
    return tmp_path / "set"


def write(place: Path, text: str, encoding: str = "utf-8") -> str:
    (place / "train.csv").write_text(text, encoding=encoding, newline="")
    return f"csv:{place}/train.csv"


@pytest.mark.parametrize(
    "text",
    [
        "path,label\nb/three.png,dog\na/two.jpg,cat\nfour.png,dog\n",
        "Label;x;File\r\ndog;1;b/three.png\r\ncat;2;a/two.jpg\r\n\r\ndog;3;four.png\r\n",
        "b/three.png\tdog\na/two.jpg\tcat\nfour.png\tdog",
        '"b/three.png", dog\n"a/two.jpg", cat\n./four.png, dog\n',
        "\ufeffclass,image\ndog,{place}/b/three.png\ncat,a/../a/two.jpg\ndog,four.png\n",
    ],
)
def test_columns_are_found_by_name_or_by_order(place: Path, text: str) -> None:
    images = open_set(write(place, text.format(place=place)), shape=(3, 6, 6))
    assert isinstance(images, StoredSet)
    assert images.classes == ("cat", "dog")
    assert images.labels is not None
    assert images.labels.tolist() == [1, 0, 1]
    expected = [fit(decode(place / name), (3, 6, 6)) for name in ("b/three.png", "a/two.jpg", "four.png")]
    assert torch.equal(images.load().images, torch.stack(expected))


def test_labels_that_are_numbers_are_sorted_as_numbers(place: Path) -> None:
    images = read_csv(Path(write(place, "four.png,10\na/one.png,2\na/two.jpg,10\n")[4:]), (3, 4, 4))
    assert (images.classes, images.labels.tolist()) == (("2", "10"), [1, 0, 1])


def test_without_labels_there_are_none_and_one_size_needs_no_shape(place: Path) -> None:
    images = load(write(place, "path\nfour.png\nfour.png\n"))
    assert (images.labels, images.classes, images.images.shape) == (None, None, (2, 3, 13, 12))


def test_damaged_and_missing_pictures_are_named_or_skipped(place: Path) -> None:
    name = write(place, "path,label\nfour.png,x\ngone.png,y\na/one.png,z\n")
    with pytest.raises(Damaged, match=r"1 of 3 .*gone\.png \(No such file or directory\).*skip"):
        load(name, shape=(3, 4, 4))
    images = open_set(name, shape=(3, 4, 4), damaged="skip")
    assert images.labels.tolist() == [0, 2]
    assert images.skipped == ("gone.png: No such file or directory",)


def test_a_changed_list_is_another_set(place: Path) -> None:
    first = load(write(place, "four.png\na/one.png\n"), shape=(3, 4, 4))
    second = load(write(place, "a/one.png\nfour.png\n"), shape=(3, 4, 4))
    assert torch.equal(first.images.flip(0), second.images)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("", NotFound, "lists no pictures"),
        ("path,label\n", NotFound, "lists no pictures"),
        ("name,label\nfour.png,x\n", Damaged, r"columns name, label, but none named path"),
        ("path,label\nfour.png,x\na/one.png\n", Damaged, "line 3 .* has 1 columns"),
        ("path,label\nfour.png,x\na/one.png,\n", Damaged, "1 of the 2 pictures .* no label, first number 2"),
        ("path,label\n../four.png,x\n", BadValue, "line 2 .*'../four.png' leads outside .*absolute"),
        ("path,label\na/../../four.png,x\n", BadValue, "leads outside"),
        ("path,label\n,x\n", BadValue, "line 2 .* is not a path"),
        ('path,label\n"four.png,x\n' + "a" * 200_000, Damaged, r"train\.csv"),
    ],
)
def test_what_is_wrong_with_a_list_is_one_line(place: Path, text: str, kind: type[ProodError], said: str) -> None:
    with pytest.raises(kind, match=said):
        load(write(place, text), shape=(3, 4, 4))


def test_what_is_no_list_is_refused(place: Path) -> None:
    for name in ("missing.csv", "a", "null\0byte.csv"):
        with pytest.raises((NotFound, NoAccess, Unsupported)):
            load(f"csv:{place}/{name}")
    (place / "train.csv").write_bytes(b"path\n\xff\xfe.png\n")
    with pytest.raises(Damaged, match="UTF-8"):
        load(f"csv:{place}/train.csv")
