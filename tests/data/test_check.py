import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

from prood.data import (
    ImageSet,
    StoredSet,
    check,
    file_source,
    noise_source,
    public_source,
    read_folder,
    source,
    sources,
)
from prood.data.catalog import Facts, Public
from prood.errors import NotFound, ProodError, UnknownName, Unsupported

PIXELS = torch.randint(0, 256, (30, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
PIXELS[:, 1] //= 3
LABELS = torch.arange(30) % 3


class Reader:
    """Reads a tensor, of which some rows are damaged, and counts."""

    def __init__(self, images: Tensor, damaged: tuple[int, ...] = ()) -> None:
        self.images, self.damaged, self.reads = images, damaged, 0

    def __len__(self) -> int:
        return len(self.images)

    def read(self, row: int) -> Tensor:
        self.reads += 1
        if row in self.damaged:
            raise ProodError(f"the file {row}.png is damaged")
        return self.images[row]

    def fingerprint(self) -> str:
        return "0123456789abcdef"


def stored(reader: Reader, labels: Tensor | None = None) -> StoredSet:
    return StoredSet("toys:test", reader, tuple(reader.images.shape[1:]), labels)


def right(images: Tensor = PIXELS) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation as NumPy says."""
    pixels = images.numpy().astype(np.float64) / 255
    return tuple(pixels.mean((0, 2, 3))), tuple(pixels.std((0, 2, 3)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sources, "_REGISTRY", {})
    monkeypatch.setenv("PROOD_DATA", str(tmp_path))
    (tmp_path / "toys").mkdir()
    return tmp_path


def register(images: ImageSet | StoredSet, facts: Facts | None = None, splits: tuple[str, ...] = ("test",)) -> None:
    about = Public("Toys", "MIT", "", 1, "toys", by_hand="Ask.", facts={"test": facts} if facts else {})
    public_source("toys", description="toys", splits=splits, about=about)(lambda *_: images)


def run(name: str = "toys", **options: bool) -> tuple[dict[str, bool | None], str]:
    """What is right of the last split, and what was printed."""
    console = Console(file=io.StringIO(), width=60)
    found = check.check(name, console, **options)
    return {one.fact: one.right for one in found}, console.file.getvalue()


@pytest.mark.parametrize("kind", [ImageSet, StoredSet])
def test_a_set_as_published_is_right_in_all_things(kind: type) -> None:
    mean, std = right()
    images = ImageSet("toys:test", PIXELS, LABELS) if kind is ImageSet else stored(Reader(PIXELS), LABELS)
    register(images, Facts(30, (10, 10, 10), mean, std))
    found, said = run()
    assert found == dict.fromkeys(("images", "per class", "readable", "mean", "std"), True) | {
        "shape": None,
        "fingerprint": None,
    }
    assert said.startswith(
        "toys:test\n  ✓ images       30   published: 30\n  ✓ per class    3 × 10   published: 3 × 10\n"
    )
    assert images.fingerprint() in said
    assert " ".join(f"{value:.5f}" for value in mean) in said


@pytest.mark.parametrize("fact", ["images", "per class", "mean", "std"])
def test_what_differs_is_marked_and_all_else_is_still_said(fact: str) -> None:
    mean, std = right()
    facts = {
        "images": Facts(31, (10, 10, 10), mean, std),
        "per class": Facts(30, (10, 11, 9), mean, std),
        "mean": Facts(30, (10, 10, 10), (mean[0], mean[1], mean[2] + 6e-5), std),
        "std": Facts(30, (10, 10, 10), mean, (std[0] - 6e-5, *std[1:])),
    }
    register(ImageSet("toys:test", PIXELS, LABELS), facts[fact])
    found, said = run()
    assert [key for key, value in found.items() if value is False] == [fact]
    assert len(found) == 7
    assert f"  ✗ {fact} " in said


def test_a_rounded_mean_is_near_enough() -> None:
    mean, std = right()
    register(ImageSet("", PIXELS), Facts(30, None, tuple(round(m, 4) for m in mean), tuple(round(s, 4) for s in std)))
    assert False not in run()[0].values()


def test_missing_labels_and_another_number_of_channels_are_wrong() -> None:
    mean, std = right()
    register(ImageSet("toys:test", PIXELS), Facts(30, (10, 10, 10), mean[:1], std))
    found, said = run()
    assert (found["per class"], found["mean"], found["std"]) == (False, False, True)
    assert "no labels" in said


def test_damaged_images_are_named_and_the_others_still_counted() -> None:
    good = [row for row in range(30) if row not in (3, 17)]
    register(stored(Reader(PIXELS, (3, 17))), Facts(30, None, *right(PIXELS[good])))
    found, said = run()
    assert (found["images"], found["readable"], found["damaged"], found["mean"]) == (True, False, False, True)
    assert "28 of all 30" in said
    assert "  ✗ damaged      the file 3.png is damaged\n  ✗ damaged      the file 17.png is damaged\n" in said


def test_a_set_that_is_all_damaged_has_no_mean_and_a_short_list() -> None:
    register(stored(Reader(PIXELS, tuple(range(30)))))
    found, said = run()
    assert "mean" not in found
    assert said.count(".png is damaged") == 20
    assert "and 10 more" in said


def test_a_set_without_facts_is_measured() -> None:
    source("plain", description="", splits=("a", "b"))(lambda split: ImageSet(split, PIXELS, LABELS))
    found, said = run("plain")
    assert found["mean"] is found["std"] is found["images"] is found["per class"] is None
    assert said.count("fingerprint") == 2
    assert run("plain:b")[1] == said[said.index("plain:b") :]
    file_source("own", description="")(lambda path, _: ImageSet(str(path), PIXELS))
    assert run("own:x.npz")[1].startswith("own:x.npz\n  · images       30\n")


def test_big_sets_are_sampled_unless_all_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MANY", 20)
    monkeypatch.setattr(check, "SAMPLE", 12)
    labels = torch.arange(30) % 2
    reader = Reader(torch.full((30, 1, 2, 2), 51, dtype=torch.uint8))
    register(stored(reader, labels), Facts(30, (15, 15), (0.205,), (0.0,)))
    found, said = run()
    assert reader.reads == 12
    assert "12 of a sample of 12" in said
    assert False not in found.values()
    found, said = run(everything=True)
    assert reader.reads == 42
    assert found["mean"] is False  # 0.2 is near enough for a sample only
    register_count = Facts(31, None, (0.25,), (0.0,))
    sources._REGISTRY.clear()
    register(stored(reader), register_count)
    found, _ = run()
    assert (found["images"], found["mean"], found["std"]) == (False, False, True)


def test_blocks_do_not_change_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    register(stored(Reader(PIXELS, (5,))))
    whole = run()[1]
    monkeypatch.setattr(check, "_BLOCK", 7 * 60)
    assert run()[1] == whole


def test_a_split_that_cannot_be_opened_does_not_hide_the_other() -> None:
    about = Public("Toys", "MIT", "", 1, "toys")

    @public_source("toys", description="", splits=("train", "test"), about=about)
    def toys(_: Path, split: str, __: object) -> ImageSet:
        if split == "train":
            raise ProodError("train.mat is missing")
        return ImageSet("toys:test", PIXELS)

    found, said = run()
    assert found["opened"] is False
    assert "toys:train\n  ✗ opened       train.mat is missing\ntoys:test\n  · images" in said


def test_what_is_not_here_or_made_up_is_not_checked(folder: Path) -> None:
    register(ImageSet("", PIXELS))
    (folder / "toys").rmdir()
    with pytest.raises(NotFound, match="'toys'"):
        run()
    noise_source("fog", description="")(lambda *_: ImageSet("", PIXELS))
    with pytest.raises(Unsupported, match="'fog'"):
        run("fog")


def test_on_a_terminal_there_is_a_bar() -> None:
    register(stored(Reader(PIXELS)))
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    check.check("toys", console)
    assert "reading" in console.file.getvalue()


def test_pictures_of_several_sizes_are_not_damaged_but_what_is_is(folder: Path) -> None:
    file_source("folder", description="pictures")(read_folder)
    for name, size in (("a", (5, 4)), ("b", (6, 4)), ("c", (3, 9))):
        Image.new("RGB", size, "red").save(folder / "toys" / f"{name}.png")
    found, said = run(f"folder:{folder}/toys")
    assert (found["sizes"], found["readable"]) == (None, True)
    assert "2 differ from the first" in said
    assert "data.image" in said
    assert "3 of all 3" in said
    assert "damaged" not in said
    (folder / "toys" / "d.png").write_bytes(b"no picture")
    found, said = run(f"folder:{folder}/toys")
    assert (found["sizes"], found["readable"], found["damaged"]) == (None, False, False)
    assert "3 of all 4" in said
    assert said.count("✗ damaged") == 1


def test_a_split_that_does_not_exist_is_no_fault_of_the_set() -> None:
    register(stored(Reader(PIXELS)), splits=("train", "test"))
    with pytest.raises(UnknownName, match=r"'toys'.*'tset'"):
        run("toys:tset")
