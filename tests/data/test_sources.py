import subprocess
import sys
from pathlib import Path

import pytest
import torch

from prood.data import ImageSet, file_source, load, names, noise_source, source, sources
from prood.errors import BadValue, UnknownName


def tiny(name: str = "tiny") -> ImageSet:
    return ImageSet(name, torch.zeros(2, 1, 3, 4, dtype=torch.uint8))


@pytest.fixture(autouse=True)
def _no_sets_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict:
    """An empty registry, for one test."""
    empty: dict = {}
    monkeypatch.setattr(sources, "_REGISTRY", empty)
    return empty


def test_names_lists_every_source_with_splits_and_a_description() -> None:
    listed = {entry.name: entry.splits for entry in names() if entry.description and entry.public is None}
    assert listed == {
        "csv": ("PATH",),
        "digits": ("train", "validation", "test"),
        "faces": ("test",),
        "folder": ("PATH",),
        "hf": ("PATH",),
        "left-out": ("test",),
        "made": (),
        "materials": ("test",),
        "mosaic": ("PATH",),
        "npz": ("PATH",),
        "photographs": ("train", "validation", "test"),
        "smooth": (),
        "text": ("test",),
        "uniform": (),
    }


def test_every_listed_set_loads_under_its_own_name() -> None:
    like = load("digits:validation")
    for name, splits, _, public, folder in names():
        assert folder is None
        if public is None and splits != ("PATH",):
            for full in [f"{name}:{split}" for split in splits] or [name]:
                loaded = load(full, like=like, count=3)
                assert loaded.name == full
                assert loaded.shape == (1, 28, 28)


def test_load_passes_the_split_and_reads_it_once(registry: dict) -> None:
    calls = []

    @source("mine", description="mine", splits=("a", "b"))
    def mine(split: str) -> ImageSet:
        calls.append(split)
        return tiny(split)

    assert load("mine:b").name == "b"
    assert load("mine:a") is load("mine:a")
    assert calls == ["b", "a"]


def test_a_single_split_may_be_left_out(registry: dict) -> None:
    source("one", description="one", splits=("test",))(tiny)
    source("two", description="two", splits=("train", "test"))(tiny)
    assert load("one").name == load("one:test").name == "test"
    with pytest.raises(UnknownName, match="'two'"):
        load("two")


def test_noise_gets_count_shape_and_seed(registry: dict) -> None:
    @noise_source("grey", description="grey")
    def grey(count: int, shape: tuple[int, int, int], seed: int) -> ImageSet:
        return ImageSet("grey", torch.full((count, *shape), seed, dtype=torch.uint8))

    made = load("grey", like=tiny(), count=5, seed=9)
    assert load("grey", shape=tiny().shape, count=5, seed=9).images.equal(made.images)
    assert made.images.shape == (5, 1, 3, 4)
    assert made.images.unique().tolist() == [9]
    with pytest.raises(BadValue, match="like="):
        load("grey")
    with pytest.raises(UnknownName, match="'grey'"):
        load("grey:test", like=tiny())


def test_no_name_is_not_the_folder_that_one_is_in() -> None:
    with pytest.raises(UnknownName):
        load("")


def test_a_file_source_gets_the_path_even_with_colons_and_is_read_anew(registry: dict) -> None:
    paths = []

    @file_source("raw", description="raw")
    def raw(path: Path, shape: object) -> ImageSet:
        paths.append(path)
        return tiny()

    assert load("raw:a:b/c.raw") is not load("raw:a:b/c.raw")
    load("raw:~/x")
    assert paths == [Path("a:b/c.raw"), Path("a:b/c.raw"), Path.home() / "x"]
    for name in ("raw", "raw:"):
        with pytest.raises(BadValue, match="'raw:PATH'"):
            load(name)


def test_an_unknown_name_or_split_lists_what_exists() -> None:
    with pytest.raises(UnknownName, match="'dogz:train'"):
        load("dogz:train")
    with pytest.raises(UnknownName, match=r"'digit:train'.*'digits'"):
        load("digit:train")
    with pytest.raises(UnknownName, match="'tset'"):
        load("digits:tset")
    with pytest.raises(UnknownName, match=r"'faces'.*''"):
        load("faces:")


@pytest.mark.parametrize("name", ["taken", "", "a:b"])
def test_a_name_is_given_once_and_has_no_colon(registry: dict, name: str) -> None:
    source("taken", description="first", splits=("test",))(tiny)
    for register in (
        source(name, description="", splits=("test",)),
        file_source(name, description=""),
        noise_source(name, description=""),
    ):
        with pytest.raises(BadValue):
            register(tiny)
    assert list(registry) == ["taken"]


@pytest.mark.slow
def test_another_process_loads_the_same_bytes_and_imports_no_optional_package() -> None:
    program = """
import sys, torch
torch.set_num_threads(1)
from prood.data import load
digits = load("digits:train")
for name in ("digits:train", "photographs:validation", "faces:test", "smooth", "uniform"):
    print(load(name, like=digits, count=50, seed=3).fingerprint())
print(sorted({"mlxtend", "skimage", "sklearn", "pandas", "scipy", "pooch"} & set(sys.modules)))
"""
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "5", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    digits = load("digits:train")
    here = [
        load(name, like=digits, count=50, seed=3).fingerprint()
        for name in ("digits:train", "photographs:validation", "faces:test", "smooth", "uniform")
    ]
    assert other[:5] == here
    assert other[5] == "[]"
