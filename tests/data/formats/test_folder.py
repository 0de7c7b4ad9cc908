import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import StoredSet, load, open_set, read_folder
from prood.data.formats.folder import Names, Tree, find_pictures, listed
from prood.data.formats.pictures import MIXED, decode, fit
from prood.errors import Damaged, Mismatch, NotFound, ProodError, Unsupported


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
    assert list(read.reader.files) == ["cat/z.png", "dog/b.png", "dog/deeper/a.PNG"]
    assert read.name == f"folder:{classes}"
    assert read.classes == ("cat", "dog", "eel")
    assert read.labels is not None
    assert read.labels.tolist() == [0, 1, 1]
    expected = [np.array(Image.open(classes / name)) for name in read.reader.files]
    assert torch.equal(read.load().images, torch.from_numpy(np.stack(expected)).permute(0, 3, 1, 2))


def test_a_picture_outside_of_them_means_no_labels(classes: Path) -> None:
    save(classes / "extra.bmp")
    read = read_folder(classes)
    assert list(read.reader.files) == ["cat/z.png", "dog/b.png", "dog/deeper/a.PNG", "extra.bmp"]
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
    save(tmp_path / "b.png", (5, 6))
    read = read_folder(tmp_path)
    assert read.shape == (3, 5, 6)
    assert read.take([0]).shape == (1, 3, 5, 6)
    with pytest.raises(Mismatch, match=rf"{tmp_path / 'b.png'}.*--like.*NAME"):
        read.take([1])


def test_a_grey_set_refuses_colour_but_not_the_other_way_round(tmp_path: Path) -> None:
    save(tmp_path / "grey/a.png", mode="L")
    save(tmp_path / "grey/b.png")
    save(tmp_path / "colour/a.png")
    save(tmp_path / "colour/b.png", mode="L")
    assert read_folder(tmp_path / "grey").shape == (1, 5, 6)
    with pytest.raises(Mismatch, match=r"b\.png"):
        load(f"folder:{tmp_path / 'grey'}")
    assert load(f"folder:{tmp_path / 'colour'}").shape == (3, 5, 6)


def test_a_damaged_picture_among_good_ones_is_refused_when_it_is_read(classes: Path) -> None:
    bad = classes / "dog" / "b.png"
    bad.write_bytes(bad.read_bytes()[:60])
    read = read_folder(classes)
    assert read.take([0, 2]).shape == (2, 3, 5, 6)
    with pytest.raises(Damaged, match=str(bad)):
        read.load()
    bad.unlink()
    with pytest.raises(ProodError, match=str(bad)):
        read.take([1])
    with pytest.raises(ProodError, match=str(bad)):
        read.fingerprint()


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
