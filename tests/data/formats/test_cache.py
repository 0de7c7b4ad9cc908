import json
import pickle
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.atomic import locked
from prood.data import parallel
from prood.data.formats import cache
from prood.data.formats.cache import cached, open_cache
from prood.data.formats.folder import Tree, find_pictures
from prood.data.formats.pictures import MIXED
from prood.errors import Damaged, NoAccess

SHAPE = (3, 8, 8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "train"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(10):
        pixels = random.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def tree(root: Path) -> Tree:
    return Tree(root, find_pictures(root), SHAPE, filters=MIXED)


def images(root: Path, rows: list[int]) -> torch.Tensor:
    return torch.stack([tree(root).read(row) for row in rows])


class Counting(Tree):
    """A tree that remembers which rows were read, and fails at one of them as if the process were killed."""

    def __init__(self, root: Path, fail: int = -1) -> None:
        plain = tree(root)
        super().__init__(plain.root, plain.files, plain.shape, filters=plain.filters)
        self.__dict__.update(rows=[], fail=fail)

    def read(self, row: int) -> torch.Tensor:
        self.__dict__["rows"].append(row)
        if row == self.__dict__["fail"]:
            raise KeyboardInterrupt
        return super().read(row)

    @property
    def seen(self) -> list[int]:
        return sorted(self.__dict__["rows"])


def test_builds_once_and_reads_the_images_of_the_tree(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "cache" / "a.bin"
    first = Counting(root)
    made = cached(first, file, "mine")
    assert made.name == "mine"
    assert torch.equal(made.load().images, images(root, list(range(10))))
    assert first.seen == list(range(10))
    assert file.read_bytes() == images(root, list(range(10))).numpy().tobytes()
    again = Counting(root)
    assert torch.equal(cached(again, file, "mine").load().images, made.load().images)
    assert again.seen == []
    assert sorted(path.name for path in file.parent.iterdir()) == ["a.bin", "a.json"]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_the_bytes_do_not_depend_on_workers_or_chunks(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, chunk: int
) -> None:
    monkeypatch.setattr(cache, "_CHUNK", chunk)
    monkeypatch.setattr(parallel, "cores", lambda: workers)
    made = cached(tree(root), tmp_path / "a.bin", "mine")
    assert torch.equal(made.load().images, images(root, list(range(10))))


def test_damaged_pictures_are_left_out_and_named(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_CHUNK", 3)
    good = images(root, [0, 1, 3, 4, 5, 6, 8, 9])
    whole = tree(root).fingerprint()
    for number in (2, 7):
        (root / f"{number}.png").write_bytes((root / f"{number}.png").read_bytes()[:99])
    made = cached(tree(root), tmp_path / "a.bin", "mine")
    assert torch.equal(made.load().images, good)
    note = json.loads((tmp_path / "a.json").read_text())
    assert note["skipped"] == ["2.png", "7.png"]
    assert note["count"] == 8
    assert note["origin"] != whole
    assert "2 of 10 pictures are damaged and were left out" in capfd.readouterr().err


def test_if_none_is_readable_it_says_so(root: Path, tmp_path: Path) -> None:
    for path in root.iterdir():
        path.write_bytes(b"no picture")
    with pytest.raises(Damaged, match=r"10 pictures of mine.*0\.png"):
        cached(tree(root), tmp_path / "cache" / "a.bin", "mine")
    assert not list((tmp_path / "cache").iterdir())


def test_a_picture_that_is_gone_stops_the_build(root: Path, tmp_path: Path) -> None:
    """It is not damaged: perhaps the disk is gone, and nothing more could be read."""
    some = tree(root)
    some.fingerprint()
    (root / "4.png").unlink()
    with pytest.raises(Damaged, match=r"4\.png"):
        cached(some, tmp_path / "a.bin", "mine")
    assert not (tmp_path / "a.bin").exists()


def test_an_interrupted_build_goes_on_where_it_stopped(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_CHUNK", 3)
    monkeypatch.setattr(parallel, "cores", lambda: 1)
    (root / "1.png").write_bytes(b"no picture")
    file = tmp_path / "a.bin"
    with pytest.raises(KeyboardInterrupt):
        cached(Counting(root, fail=7), file, "mine")
    assert open_cache(file, "mine", SHAPE) is None
    part = tmp_path / "a.bin.part"
    with part.open("ab") as out:
        out.write(b"half an image")
    rest = Counting(root)
    made = cached(rest, file, "mine")
    assert rest.seen == [6, 7, 8, 9]
    assert torch.equal(made.load().images, images(root, [0, 2, 3, 4, 5, 6, 7, 8, 9]))
    assert json.loads((tmp_path / "a.json").read_text())["skipped"] == ["1.png"]
    assert not part.exists()


@pytest.mark.parametrize("damage", ["short", "missing", "note", "tree"])
def test_what_cannot_go_on_starts_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(cache, "_CHUNK", 3)
    monkeypatch.setattr(parallel, "cores", lambda: 1)
    file, part, note = (tmp_path / name for name in ("a.bin", "a.bin.part", "a.bin.part.json"))
    with pytest.raises(KeyboardInterrupt):
        cached(Counting(root, fail=7), file, "mine")
    if damage == "short":
        part.write_bytes(part.read_bytes()[:-1000])
    elif damage == "missing":
        part.unlink()
    elif damage == "note":
        note.write_text(note.read_text()[:-9])
    else:
        Image.new("RGB", (64, 64)).save(root / "0.png")
    rest = Counting(root)
    made = cached(rest, file, "mine")
    assert rest.seen == list(range(10))
    assert torch.equal(made.load().images, images(root, list(range(10))))


@pytest.mark.parametrize("change", ["picture", "new", "cut", "json", "shape"])
def test_is_rebuilt_when_it_no_longer_fits(root: Path, tmp_path: Path, change: str) -> None:
    file = tmp_path / "a.bin"
    before = cached(tree(root), file, "mine").fingerprint()
    if change == "picture":
        Image.new("RGB", (64, 64), (1, 2, 3)).save(root / "3.png")
    elif change == "new":
        shutil.copy(root / "3.png", root / "33.png")
    elif change == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif change == "json":
        (tmp_path / "a.json").write_text("[]")
    counting = Counting(root)
    if change == "shape":
        counting.__dict__["shape"] = (3, 4, 4)
    made = cached(counting, file, "mine")
    assert counting.seen == list(range(len(counting)))
    expected = torch.stack([counting.read(row) for row in range(len(counting))])
    assert torch.equal(made.load().images, expected)
    assert (made.fingerprint() == before) == (change in ("cut", "json"))


def test_a_pickled_reader_is_small_and_reads_the_same(root: Path, tmp_path: Path) -> None:
    made = cached(tree(root), tmp_path / "a.bin", "mine")
    made.take([3])
    pickled = pickle.dumps(made)
    assert len(pickled) < 1000
    copy = pickle.loads(pickled)
    assert torch.equal(copy.take([9, 0]), made.take([9, 0]))
    assert copy.fingerprint() == made.fingerprint()
    (tmp_path / "a.bin").unlink()
    with pytest.raises(Damaged, match=r"a\.bin"):
        pickle.loads(pickled).take([0])


def test_the_images_are_not_writable_through_the_cache(root: Path, tmp_path: Path) -> None:
    made = cached(tree(root), tmp_path / "a.bin", "mine")
    made.reader.read(0).zero_()
    assert torch.equal(made.take([0]), images(root, [0]))


PROGRAM = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)

from prood.data.formats import cache
from prood.data.formats.folder import Tree, find_pictures
from prood.data.formats.pictures import MIXED
cache._CHUNK = 1
class Loud(Tree):
    def read(self, row):
        print(row)
        return super().read(row)
root, file = map(Path, sys.argv[1:])
made = cache.cached(Loud(root, find_pictures(root), (3, 8, 8), filters=MIXED), file, "mine")
print("set", made.load().fingerprint())
"""


@pytest.mark.slow
def test_of_several_processes_one_builds_and_the_others_wait(root: Path, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", PROGRAM, str(root), str(tmp_path / "a.bin")]
    runs = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    lines = [run.communicate()[0].split("\n") for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert lines[0][-2] == lines[1][-2]
    assert lines[0][-2].startswith("set ")
    rows = [line for run in lines for line in run if line.isdigit()]
    assert sorted(rows, key=int) == [str(row) for row in range(10)]


def test_waits_for_whoever_holds_the_lock(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    found = []
    with locked(file):
        waiting = threading.Thread(target=lambda: found.append(cached(tree(root), file, "mine")))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        assert not (tmp_path / "a.bin.part").exists()
    waiting.join(60)
    assert len(found[0]) == 10


class Leaking(Tree):
    """What `decode` does to the filters if two threads enter and leave it in the wrong order."""

    def read(self, row: int) -> torch.Tensor:
        warnings.simplefilter("ignore")
        return super().read(row)


def test_leaves_the_filters_of_warnings_as_they_were(root: Path, tmp_path: Path) -> None:
    before = list(warnings.filters)
    cached(Leaking(root, find_pictures(root), SHAPE), tmp_path / "a.bin", "mine")
    assert warnings.filters == before


def test_a_full_or_closed_disk_is_one_line(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(NoAccess, match=r"cannot write .*: (Not a directory|File exists)"):
        cached(tree(root), tmp_path / "taken" / "a.bin", "mine")
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(NoAccess, match=r"0\.0.*0\.0"):
        cached(tree(root), tmp_path / "a.bin", "mine")
