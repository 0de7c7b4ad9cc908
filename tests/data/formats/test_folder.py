import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import Order, StoredSet, load, open_set, pipeline, read_folder
from prood.data.formats.folder import Names, Tree, find_pictures, listed
from prood.data.formats.pictures import MIXED, decode, fit
from prood.errors import BadValue, Damaged, Mismatch, NoAccess, NotFound, Unsupported


def save(path: Path, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> Path:
    """A picture of noise that is a function of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(list(path.name.encode()))
    image = Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    image.convert(mode).save(path)
    return path


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    for name in ("dog/b.png", "dog/deeper/a.PNG", "cat/z.png", "cat/.hidden.png", ".git/a.png", "cat/notes.txt"):
        if name.endswith("txt"):
            (tmp_path / name).write_text("no picture")
        else:
            save(tmp_path / name)
    (tmp_path / "eel").mkdir()
    return tmp_path


def test_subfolders_are_classes(classes: Path) -> None:
    read = open_set(f"folder:{classes}")
    assert isinstance(read, StoredSet)
    files = list(find_pictures(classes))
    assert files == ["cat/z.png", "dog/b.png", "dog/deeper/a.PNG"]
    assert read.name == f"folder:{classes}"
    assert read.classes == ("cat", "dog", "eel")
    assert read.labels is not None
    assert read.labels.tolist() == [0, 1, 1]
    expected = [np.array(Image.open(classes / name)) for name in files]
    assert torch.equal(read.load().images, torch.from_numpy(np.stack(expected)).permute(0, 3, 1, 2))


def test_a_picture_outside_of_them_means_no_labels(classes: Path) -> None:
    save(classes / "extra.bmp")
    read = read_folder(classes)
    assert len(read) == 4
    assert read.labels is None
    assert read.classes is None


def test_the_order_is_that_of_code_points_folder_by_folder(tmp_path: Path) -> None:
    names = ["B.png", "a-b/x.png", "a.png", "a/x.png", "a10.png", "a2.png", "é.png", "ü/y.jpeg", "z.TIFF"]
    for name in names:
        save(tmp_path / name)
    found = list(find_pictures(tmp_path))
    assert found == sorted(names, key=lambda name: name.split("/"))
    assert sorted(found) == sorted(names)


def test_every_ending_counts_in_any_case(tmp_path: Path) -> None:
    endings = ["jpg", "JPEG", "png", "WebP", "bmp", "ppm", "tif", "gif"]
    for ending in endings:
        save(tmp_path / f"a.{ending}")
    assert len(read_folder(tmp_path)) == len(endings)


def test_with_a_shape_pictures_are_fitted_to_it(tmp_path: Path) -> None:
    save(tmp_path / "a.png", (60, 40))
    save(tmp_path / "b.png", (30, 50), "L")
    read = read_folder(tmp_path, (3, 16, 16))
    expected = [fit(decode(tmp_path / name), (3, 16, 16)) for name in ("a.png", "b.png")]
    assert torch.equal(read.load().images, torch.stack(expected))
    like = read.load()
    assert torch.equal(load(f"folder:{tmp_path}", like=like).images, like.images)
    with pytest.raises(Mismatch):
        read_folder(tmp_path, (2, 16, 16)).load()


def test_without_one_all_must_have_the_first_ones(tmp_path: Path) -> None:
    save(tmp_path / "a.png")
    assert read_folder(tmp_path).shape == (3, 5, 6)
    save(tmp_path / "b.png", (5, 6))
    with pytest.raises(Mismatch, match=rf"b\.png in folder:{tmp_path} .*data\.image.*shape="):
        read_folder(tmp_path).load()
    assert read_folder(tmp_path, (3, 5, 6)).load().images.shape == (2, 3, 5, 6)


def test_a_grey_set_refuses_colour_but_not_the_other_way_round(tmp_path: Path) -> None:
    save(tmp_path / "grey/a.png", mode="L")
    save(tmp_path / "grey/b.png")
    save(tmp_path / "colour/a.png")
    save(tmp_path / "colour/b.png", mode="L")
    with pytest.raises(Mismatch, match=r"b\.png"):
        load(f"folder:{tmp_path / 'grey'}")
    assert load(f"folder:{tmp_path / 'colour'}").shape == (3, 5, 6)


def test_damaged_pictures_are_refused_or_left_out_and_listed(classes: Path) -> None:
    save(classes / "eel" / "c.png")
    for number in range(5):
        (classes / "cat" / f"{number}.jpg").write_bytes(b"no picture")
    bad = classes / "dog" / "b.png"
    bad.write_bytes(bad.read_bytes()[:60])
    for shape in (None, (3, 4, 4)):
        with pytest.raises(Damaged, match=r"6 of 9 .*cat/0\.jpg .*cat/2\.jpg .*and 3 more.*damaged = \"skip\""):
            read_folder(classes, shape).load()
        read = open_set(f"folder:{classes}", shape=shape, damaged="skip")
        assert isinstance(read, StoredSet)
        assert read.labels is not None
        assert (read.labels.tolist(), read.classes) == ([0, 1, 2], ("cat", "dog", "eel"))
        assert [line.partition(":")[0] for line in read.skipped] == [f"cat/{i}.jpg" for i in range(5)] + ["dog/b.png"]
        good = ["cat/z.png", "dog/deeper/a.PNG", "eel/c.png"]
        expected = torch.stack([fit(decode(classes / name), read.shape) for name in good])
        assert torch.equal(read.load().images, expected)
    for path in [*(classes / "cat").glob("*.jpg"), bad]:
        path.unlink()
    assert read_folder(classes).skipped == ()
    with pytest.raises(BadValue, match="skip"):
        open_set(f"folder:{classes}", damaged="remove")


def test_if_none_can_be_read_there_is_nothing_to_skip(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    Image.new("RGB", (1, 1)).save(tmp_path / "b.png")
    for shape in (None, (3, 4, 4)):
        with pytest.raises(Damaged, match=r"a\.png"):
            read_folder(tmp_path, shape, "skip").load()


def test_modes_and_sizes_of_all_kinds_are_fitted(tmp_path: Path) -> None:
    kinds = {"L": "png", "P": "png", "RGBA": "png", "LA": "png", "CMYK": "jpg", "1": "tif", "I;16": "tif"}
    for number, (mode, ending) in enumerate(kinds.items()):
        path = save(tmp_path / f"{number}.png", (20 + number, 30))
        image = Image.open(path).convert("L" if mode == "I;16" else mode)
        path.unlink()
        if mode == "I;16":
            image = Image.fromarray(np.asarray(image).astype(np.uint16) * 256)
        image.save(tmp_path / f"{number}.{ending}")
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = Image.open(save(tmp_path / "photo.png", (40, 20)))
    photo.save(tmp_path / "photo.png", exif=exif)
    for shape in ((3, 16, 16), (1, 16, 12)):
        read = read_folder(tmp_path, shape).load()
        assert read.images.shape == (len(kinds) + 1, *shape)
        assert torch.equal(read.images[-1], fit(photo.transpose(Image.Transpose.ROTATE_270), shape))


def test_the_cache_follows_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))
    folder, shape = tmp_path / "pictures", (3, 4, 4)
    for name in "abc":
        save(folder / f"{name}.bmp", (8, 8))
    first = read_folder(folder, shape)
    images, mark = first.load().images, first.fingerprint()
    assert torch.equal(first.take([1]), images[1:2])
    stamp = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*.bin")}
    assert len(stamp) == 1
    assert torch.equal(read_folder(folder, shape).load().images, images)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*.bin")} == stamp
    Image.new("RGB", (8, 8), (9, 9, 9)).save(folder / "b.bmp")  # a file of the same size
    second = read_folder(folder, shape)
    assert torch.equal(second.load().images[1], torch.full(shape, 9, dtype=torch.uint8))
    assert second.fingerprint() == mark  # which is found without reading the pictures
    assert open_set(f"folder:{folder}", shape=shape, damaged="skip").fingerprint() != mark  # they are read
    assert list((tmp_path / "data").rglob("*.bin")) == list(stamp)  # replaced, not kept beside it
    mark = second.fingerprint()
    folder.rename(tmp_path / "moved")
    assert read_folder(tmp_path / "moved", shape).fingerprint() == mark


def test_the_cache_is_made_for_most_of_a_set_or_for_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))
    for name in "abcde":
        save(tmp_path / "pictures" / f"{name}.png", (8, 8))
    few = read_folder(tmp_path / "pictures", (3, 4, 4)).select([4, 1])
    images = few.load().images
    assert not list(tmp_path.rglob("*.bin"))
    monkeypatch.setattr(pipeline, "IN_MEMORY", 10)
    batch, _ = pipeline.stream(few, Order(2, 2, seed=0), torch.device("cpu"), workers=0)(0)
    assert list(tmp_path.rglob("*.bin"))
    order = Order(2, 2, seed=0).rows(0)
    assert torch.equal(batch, images[order])
    (tmp_path / "pictures" / "c.png").write_bytes(b"no picture")
    assert torch.equal(few.load().images, images)  # of the others nobody asks
    with pytest.raises(Damaged, match=r"c\.png"):
        few.prepared(often=True)


def test_without_room_for_a_cache_pictures_are_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_text("a file where the data folder should be")
    monkeypatch.setenv("PROOD_DATA", str(tmp_path / "data"))
    for name in "ab":
        save(tmp_path / "pictures" / f"{name}.png", (9, 7))
    expected = torch.stack([fit(decode(tmp_path / "pictures" / f"{name}.png"), (3, 4, 4)) for name in "ab"])
    assert torch.equal(read_folder(tmp_path / "pictures", (3, 4, 4)).load().images, expected)
    with pytest.raises(NoAccess, match="PROOD_DATA"):
        read_folder(tmp_path / "pictures", (3, 4, 4), "skip")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_closed_picture_is_refused_or_left_out_until_it_is_opened(tmp_path: Path) -> None:
    for name in "ab":
        save(tmp_path / f"{name}.png")
    (tmp_path / "b.png").chmod(0)
    with pytest.raises(Damaged, match=r"b\.png \(Permission denied\)"):
        read_folder(tmp_path)
    assert len(read_folder(tmp_path, damaged="skip")) == 1
    (tmp_path / "b.png").chmod(0o600)
    assert len(read_folder(tmp_path, damaged="skip")) == 2


def test_a_dangling_link_is_refused_and_a_loop_is_found(tmp_path: Path) -> None:
    save(tmp_path / "a" / "x.png")
    (tmp_path / "a" / "y.png").symlink_to(tmp_path / "gone.png")
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    assert list(find_pictures(tmp_path)) == ["a/x.png", "a/y.png", "linked/x.png", "linked/y.png"]
    with pytest.raises(Damaged, match=r"a/y\.png"):
        load(f"folder:{tmp_path}")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    with pytest.raises(Unsupported):
        find_pictures(tmp_path)


def test_refuses_what_is_no_folder_of_pictures(tmp_path: Path) -> None:
    with pytest.raises(Damaged):
        load(f"folder:{tmp_path / 'missing'}")
    with pytest.raises(Damaged, match=r"x\.png"):
        load(f"folder:{save(tmp_path / 'one' / 'x.png')}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("")
    with pytest.raises(NotFound):
        load(f"folder:{tmp_path / 'empty'}")
    with pytest.raises(Damaged):
        load("folder:null\0byte")


def test_the_fingerprint_sees_names_sizes_and_treatment(tmp_path: Path) -> None:
    save(tmp_path / "a.bmp", (8, 8))
    files, shape = Names(["a.bmp"]), (3, 4, 4)
    trees = [
        Tree(tmp_path, files, shape),
        Tree(tmp_path, files, (3, 4, 5)),
        Tree(tmp_path, files, shape, size="crop"),
        Tree(tmp_path, files, shape, filters=MIXED),
        Tree(tmp_path, files, shape, cut=1),
    ]
    marks = {tree.fingerprint() for tree in trees}
    assert len(marks) == len(trees)
    assert Tree(tmp_path, files, shape).fingerprint() == trees[0].fingerprint()
    save(tmp_path / "b.bmp", (8, 8))
    marks.add(Tree(tmp_path, Names(["b.bmp"]), shape).fingerprint())
    save(tmp_path / "a.bmp", (8, 9))
    marks.add(Tree(tmp_path, files, shape).fingerprint())
    assert len(marks) == len(trees) + 2
    os.rename(tmp_path, tmp_path.with_name("moved"))
    assert Tree(tmp_path.with_name("moved"), files, shape).fingerprint() in marks


def test_a_pickled_copy_reads_the_same(classes: Path) -> None:
    read = read_folder(classes, (3, 4, 4))
    copy = pickle.loads(pickle.dumps(read))
    assert torch.equal(copy.load().images, read.load().images)
    assert copy.fingerprint() == read.fingerprint()


def test_of_several_filters_one_is_drawn_by_name(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(60)]
    for name in names:
        save(tmp_path / name, (20, 20))
    tree = Tree(tmp_path, Names(names), (3, 6, 6), filters=MIXED)
    used = []
    for row, name in enumerate(names):
        image = decode(tmp_path / name)
        used += [how for how in MIXED if torch.equal(fit(image, tree.shape, how), tree.read(row))]
    assert len(used) == len(names)
    assert set(used) == set(MIXED)
    shuffled = Tree(tmp_path, Names(reversed(names)), (3, 6, 6), filters=MIXED)
    assert torch.equal(shuffled.read(0), tree.read(59))


def test_rows_at_the_bottom_are_cut_off(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", (10, 14))
    whole = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)
    assert torch.equal(Tree(tmp_path, Names(["a.png"]), (3, 10, 10), cut=4).read(0), whole[:, :10])
    with pytest.raises(Damaged, match=r"a\.png.*14"):
        Tree(tmp_path, Names(["a.png"]), (3, 10, 10), cut=14).read(0)


def test_a_list_must_name_pictures_that_are_there(classes: Path) -> None:
    source = classes / "list.txt"
    assert list(listed(classes, ["dog/b.png", "cat/z.png"], source)) == ["dog/b.png", "cat/z.png"]
    with pytest.raises(NotFound, match=r"list\.txt.*dog/c\.png"):
        listed(classes, ["dog/b.png", "dog/c.png", "../x.png"], source)
    with pytest.raises(NotFound):
        listed(classes, [], source)
