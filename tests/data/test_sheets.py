"""Folders of sheets in the data folder: copies of public sets, and sets of the user's own."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, WebPImagePlugin

from prood.data import ImageSet, find, load, names, noise_source, open_set, public_source, sources
from prood.data.catalog import Public
from prood.data.formats import mosaic
from prood.errors import Damaged, NoAccess, NotFound, ProodError, UnknownName

TILES = np.random.default_rng(0).integers(1, 256, (130, 3, 32, 32), dtype=np.uint8)


def write(folder: Path, split: str, tiles: np.ndarray, labels: bool = False) -> None:
    """One sheet."""
    folder.mkdir(parents=True, exist_ok=True)
    padded = np.zeros((-(-len(tiles) // 100) * 100, 3, 32, 32), np.uint8)
    padded[: len(tiles)] = tiles
    sheet = padded.reshape(-1, 100, 3, 32, 32).transpose(0, 3, 1, 4, 2).reshape(-1, 3200, 3)
    Image.fromarray(sheet).save(folder / f"{split}-00.webp", "WEBP", lossless=True, quality=0, method=0)
    if labels:
        np.save(folder / f"{split}-labels.npy", np.arange(len(tiles)) % 2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder, with one public set `toys` registered that is made of the files NAME.txt in its folder."""
    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(sources, "_REGISTRY", {})

    @public_source("toys", description="toys", splits=("train", "test"), about=Public("Toys", "", "", 1, "toys"))
    def toys(folder: Path, split: str, shape: object = None) -> ImageSet:
        if not (folder / f"{split}.txt").exists():
            raise ProodError(f"there is no file {folder}/{split}.txt")
        return ImageSet(f"toys:{split}", torch.full((3, 3, 32, 32), 7, dtype=torch.uint8))

    noise_source("fog", description="fog")(lambda *_: load("toys:test"))
    return tmp_path / "data"


def same(images: ImageSet, tiles: np.ndarray) -> bool:
    return torch.equal(images.images, torch.from_numpy(tiles))


def test_a_public_set_that_was_replaced_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    @public_source("dolls", description="dolls", splits=("test",), about=Public("Dolls", "", "", 1, "dolls"))
    def dolls(folder: Path, split: str, shape: object = None) -> ImageSet:
        read.append(split)
        return ImageSet("dolls:test", torch.full((3, 3, 32, 32), len(read), dtype=torch.uint8))

    for _ in range(2):
        (folder / "dolls").mkdir(parents=True)
        first = load("dolls:test")
        assert load("dolls:test") is first
        (folder / "dolls").rename(folder / f"old-{len(read)}")
    assert read == ["test", "test"]


def test_a_folder_of_sheets_is_a_set_of_the_users_own(folder: Path) -> None:
    write(folder / "My_own-1", "train", TILES[:20], labels=True)
    write(folder / "My_own-1", "test", TILES[20:])
    (folder / "My_own-1" / "classes.txt").write_text("cat\ndog\n")
    read = load("My_own-1:train")
    assert same(read, TILES[:20])
    assert (read.name, read.classes) == ("My_own-1:train", ("cat", "dog"))
    assert read.labels is not None
    assert read.labels.tolist() == [0, 1] * 10
    # The usual rule for a name without a split.
    assert load("My_own-1", split="test").name == "My_own-1:test"
    assert same(open_set("My_own-1", split="test", like=read).load(), TILES[20:])
    with pytest.raises(UnknownName, match=r"'My_own-1'.*My_own-1:test.*My_own-1:train$"):
        load("My_own-1")
    with pytest.raises(UnknownName, match=r"'My_own-1'.*'validation'.*My_own-1:test"):
        load("My_own-1:validation")


def test_a_single_split_needs_no_name(folder: Path) -> None:
    write(folder / "places", "test", TILES)
    assert load("places").name == load("places", split="train").name == "places:test"


def test_a_public_set_is_read_from_its_sheets_under_its_own_name(folder: Path) -> None:
    write(folder / "toys", "test", TILES, labels=True)
    read = load("toys:test")
    assert same(read, TILES)
    assert read.name == "toys:test"
    assert read.labels is not None
    (folder / "toys" / "test.txt").touch()
    (folder / "toys" / "train.txt").touch()
    assert same(load("toys", split="test"), TILES)  # also where the original files are
    assert load("toys:train").images.unique().tolist() == [7]  # no sheets of this split
    assert find("toys").splits == ("train", "test")


def test_a_public_set_without_its_files_says_what_there_is(folder: Path) -> None:
    with pytest.raises(NotFound, match="'toys'"):
        load("toys:train")
    write(folder / "toys", "test", TILES)
    write(folder / "toys", "more", TILES)
    with pytest.raises(UnknownName) as caught:
        load("toys:train")
    assert str(caught.value).startswith(f"there is no file {folder}/toys/train.txt")
    assert str(caught.value).endswith("(of toys:more, toys:test there are sheets, of toys:train there are none)")
    with pytest.raises(UnknownName, match=r"'toys'.*'more'"):
        load("toys:more")
    for file in (folder / "toys").iterdir():
        file.unlink()
    with pytest.raises(ProodError, match=r"/toys/train\.txt$"):
        load("toys:train")


def test_other_sources_keep_their_names(folder: Path) -> None:
    write(folder / "fog", "test", TILES)
    assert find("fog").splits == ()
    with pytest.raises(UnknownName):
        load("fog:test")
    assert [source.name for source in names()] == ["fog", "toys"]


def test_names_lists_what_the_data_folder_holds(folder: Path) -> None:
    assert [source.name for source in names()] == ["fog", "toys"]
    write(folder / "natural", "train", TILES)
    write(folder / "natural", "a-b", TILES)
    write(folder / "toys", "train", TILES)
    write(folder / ".hidden", "train", TILES)
    (folder / "empty").mkdir()
    (folder / "file").touch()
    listed = {source.name: source for source in names()}
    assert list(listed) == ["fog", "natural", "toys"]
    assert listed["natural"] == find("natural:train")
    assert listed["natural"].splits == ("a-b", "train")
    assert listed["natural"].description == "your own, in the data folder"
    assert listed["natural"].folder == folder / "natural"
    assert listed["toys"].folder is None
    with pytest.raises(UnknownName, match=r"'naturel:train'.*'natural'"):
        load("naturel:train")
    for name in ("empty", "file:train", ".hidden:train"):
        with pytest.raises(UnknownName, match=f"'{name}'"):
            load(name)


@pytest.mark.parametrize(
    "name", ["../outside", "..", ".", "", "set/", "./set", "set\n", "SET.", "set\0", "a/../set", "{absolute}"]
)
def test_no_name_leads_out_of_the_data_folder(folder: Path, name: str) -> None:
    for place in (folder, folder / "set", folder / "SET.", folder.parent / "outside", folder.parent):
        write(place, "test", TILES[:1])
    name = name.format(absolute=folder / "set")
    assert load("set:test").name == "set:test"
    for full in (name, f"{name}:test"):
        with pytest.raises(UnknownName):
            load(full)
    for split in ("../outside/test", "../set/test", "", "test-00", "test\n"):
        with pytest.raises(UnknownName, match="'set'"):
            load(f"set:{split}")


def test_sets_are_kept_until_a_file_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        mosaic, "read_mosaic", lambda path, name, f=mosaic.read_mosaic: read.append(name) or f(path, name=name)
    )
    write(folder / "mine", "test", TILES[:10], labels=True)
    first = load("mine:test")
    assert load("mine:test") is first
    assert read == ["mine:test"]
    os.utime(folder / "mine" / "test-00.webp", ns=(1, 1))
    assert load("mine:test") is not first
    (folder / "mine" / "classes.txt").write_text("a\nb\n")
    assert load("mine:test").classes == ("a", "b")
    np.save(folder / "mine" / "test-labels.npy", np.ones(10, int))
    os.utime(folder / "mine" / "test-labels.npy", ns=(2, 2))
    changed = load("mine:test").labels
    assert changed is not None
    assert changed.tolist() == [1] * 10
    (folder / "mine" / "test-labels.npy").unlink()
    assert load("mine:test").labels is None
    # Only a few are kept.
    for split in "abcd":
        write(folder / "many", split, TILES[:1])
        load(f"many:{split}")
    assert load("many:a") is load("many:a")
    count = len(read)
    load("mine:test")
    assert len(read) == count + 1


def test_missing_and_damaged_sheets_are_named(folder: Path) -> None:
    write(folder / "mine", "test", TILES[:10])
    (folder / "mine" / "test-00.webp").rename(folder / "mine" / "test-01.webp")
    with pytest.raises(NotFound, match=r"/mine/test-00\.webp"):
        load("mine:test")
    (folder / "mine" / "test-00.webp").write_bytes(b"x")
    with pytest.raises(Damaged, match=r"/mine/test-00\.webp"):
        load("mine")
    (folder / "mine" / "test-00.webp").unlink()
    (folder / "mine" / "test-00.webp").symlink_to("nowhere")
    with pytest.raises(NoAccess, match="/mine/test"):
        load("mine")


def test_counting_needs_no_decoding(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "mine", "test", TILES)
    monkeypatch.setattr(WebPImagePlugin.WebPImageFile, "load", lambda *_: pytest.fail("it was decoded"))
    assert mosaic.about_count(folder / "mine" / "test") == 200
    (folder / "mine" / "test-00.webp").write_bytes(b"x")
    with pytest.raises(Damaged):
        mosaic.about_count(folder / "mine" / "test")
