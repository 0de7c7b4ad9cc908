"""Every source gives all its images once, in any pieces, with constant effort for a piece."""

import gzip
import importlib.util
import os
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prood.data.formats.members import member
from prood.errors import Damaged, Mismatch, NoAccess, NotFound, Unsupported
from prood.scoring.pictures import Fault, pixels
from prood.scoring.sources import Listing, Piece, chunks, planned, tables, tars

_spec = importlib.util.spec_from_file_location("scoring_conftest", Path(__file__).parents[1] / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
write_tar = _module.write_tar


def everything(place: Path, *sources: Path, size: int = 7, **options) -> tuple[list[str], list[object]]:
    """The names and images of all pieces of these sources."""
    file = place / "listing.parquet"
    with Listing(file) as listing:
        pieces = planned([str(source) for source in sources], listing, **({"column": None, "rows": 11} | options))
    names, images = [], []
    for piece in pieces:
        if piece.kind == "listing":
            piece = Piece("listing", str(file), piece.start, piece.count)
        assert piece.count is None or piece.count <= (options.get("rows") or 11)
        for chunk in chunks(piece, size):
            assert 0 < len(chunk.names) == len(chunk.images) <= size
            names += chunk.names
            images += list(chunk.images)
    return names, images


def same(found, images) -> None:
    stack, errors = pixels(found, (1, 8, 8))
    assert set(errors) <= {None}
    np.testing.assert_array_equal((stack * 255).round().numpy().astype(np.uint8), images)


def test_a_folder_gives_all_its_pictures_sorted(tmp_path, photos, images):
    names, found = everything(tmp_path, photos)
    assert names == sorted(str(path) for path in photos.rglob("[0-9b]*.*g"))
    assert len(names) == 91
    same([one for one in found if "broken" not in str(one)], images)


def test_a_folder_of_archives_and_tables_is_searched_as_well(tmp_path, contents, images):
    lake = tmp_path / "lake" / "deep"
    lake.mkdir(parents=True)
    (lake / "a.png").write_bytes(contents[0])
    write_tar(lake / "b.tar", contents[1:20])
    pq.write_table(pa.table({"bytes": contents[20:]}), lake / "c.parquet")
    names, found = everything(tmp_path, tmp_path / "lake")
    assert [names[0], names[-1]] == [str(lake / "a.png"), f"{lake}/c.parquet[69]"]
    same(found, images)


def test_lists_and_tables_of_paths(tmp_path, photos, images):
    inside = [str(path.relative_to(tmp_path)) for path in sorted(photos.rglob("[0-9]*.png"))]
    (tmp_path / "list.txt").write_text("\n".join(inside) + "\n\n")
    (tmp_path / "list.csv").write_text("label,path\n" + "".join(f'1,"{name}"\n' for name in inside))
    pq.write_table(pa.table({"label": [0] * 90, "where": inside}), tmp_path / "list.parquet", row_group_size=13)
    for name, column in (("list.txt", None), ("list.csv", None), ("list.csv", "path"), ("list.parquet", "where")):
        names, found = everything(tmp_path, tmp_path / name, column=column)
        assert names == [str(tmp_path / one) for one in inside]
        same(found, images)
    for name in ("list.csv", "list.parquet"):
        with pytest.raises(Mismatch, match="label"):
            everything(tmp_path, tmp_path / name, column="picture")


@pytest.mark.parametrize("kind", ["bytes", "struct"])
def test_parquet_with_bytes_in_ranges_that_cross_its_row_groups(tmp_path, contents, images, kind):
    column = contents if kind == "bytes" else [{"bytes": content, "path": None} for content in contents]
    pq.write_table(pa.table({"image": column}), tmp_path / "t.parquet", row_group_size=13)
    names, found = everything(tmp_path, tmp_path / "t.parquet")
    assert names == [f"{tmp_path}/t.parquet[{row}]" for row in range(90)]
    same(found, images)
    (chunk,) = chunks(Piece("parquet", str(tmp_path / "t.parquet"), 30, 4, "image"), 100)
    assert chunk.names == names[30:34]


@pytest.mark.parametrize("layout", ["NHW", "NCHW", "NHWC"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_in_any_layout(tmp_path, images, layout, save):
    arranged = {"NHW": images[:, 0], "NCHW": images, "NHWC": np.moveaxis(images, 1, -1)}[layout]
    save(tmp_path / "t.npz", images=arranged)
    names, found = everything(tmp_path, tmp_path / "t.npz")
    assert names[40] == f"{tmp_path}/t.npz[40]"
    same(found, images)


def test_a_tar_archive_that_is_cut_short_has_a_last_row_that_says_so(tmp_path, contents, images):
    write_tar(tmp_path / "t.tar", contents)
    names, found = everything(tmp_path, tmp_path / "t.tar")
    assert names[3] == f"{tmp_path}/t.tar::003.png"
    same(found, images)
    whole = (tmp_path / "t.tar").read_bytes()
    (tmp_path / "t.tar").write_bytes(whole[: len(whole) // 2])
    names, found = everything(tmp_path, tmp_path / "t.tar")
    assert names[-1] == str(tmp_path / "t.tar")
    assert isinstance(found[-1], Fault)
    same(found[:-2], images[: len(found) - 2])  # the last picture may be cut as well


def test_names_that_are_no_text_can_be_read_and_named(tmp_path, contents, images):
    folder = tmp_path / "odd"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.png")).write_bytes(contents[0])
    names, found = everything(tmp_path, folder)
    assert names == [f"{folder}/\\xff.png"]
    same(found, images[:1])


def test_small_sets_are_cut_for_several_processes_and_large_ones_into_shards(tmp_path):
    def pieces(rows: int, **options):
        np.savez(tmp_path / "t.npz", images=np.zeros((rows, 1, 1), np.uint8))
        with Listing(tmp_path / "l.parquet") as listing:
            return len(planned([str(tmp_path / "t.npz")], listing, column=None, rows=None, **options))

    assert pieces(64) == 1
    assert pieces(64 * 20) == 16
    assert pieces(64 * 40, parts=8) == 32
    assert pieces(200_000) == 20


def test_what_cannot_be_a_source_is_said_before_anything_is_scored(tmp_path, photos, contents):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "broken.npz").write_bytes(b"PK")
    np.savez(tmp_path / "floats.npz", images=np.zeros((2, 4, 4)))
    pq.write_table(pa.table({"image": [1, 2]}), tmp_path / "numbers.parquet")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "again").symlink_to(tmp_path / "loop")
    for name, error in {
        "nothing": NotFound,
        "empty": NotFound,
        "empty.txt": NotFound,
        "model.onnx": Unsupported,
        "broken.parquet": Damaged,
        "broken.npz": Damaged,
        "floats.npz": Unsupported,
        "numbers.parquet": Unsupported,
        "loop": Damaged,
    }.items():
        with pytest.raises(error, match=name):
            everything(tmp_path, tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(tmp_path, photos):
    (photos / "part-1").chmod(0)
    try:
        with pytest.raises(NoAccess, match="part-1"):
            everything(tmp_path, photos)
    finally:
        (photos / "part-1").chmod(0o755)


def test_a_listing_of_many_paths_takes_little(tmp_path):
    """Rows of a large listing are read without the others: one row group, whatever the length."""
    with Listing(tmp_path / "l.parquet") as listing:
        for number in range(20_500):
            listing.add(f"/lake/{number:08}.jpg")
    assert pq.ParquetFile(tmp_path / "l.parquet").metadata.num_row_groups == 5
    (chunk,) = chunks(Piece("listing", str(tmp_path / "l.parquet"), 20_450, 10), 256)
    assert chunk.names[0] == "/lake/00020450.jpg"
    assert len(chunk.names) == 10


def npy_of(shape: tuple[int, ...], content: bytes) -> bytes:
    header = str({"descr": "|u1", "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content


@pytest.mark.parametrize(
    ("shape", "length"),
    [((10**15, 0, 5), 0), ((10**12, 1, 1), 4), ((2, 40_000, 40_000, 3), 9), ((1, 2, 2), 2**30)],
)
def test_arrays_that_are_not_as_large_as_they_say(tmp_path, shape, length):
    """A plan of 10¹¹ shards, a row of 5 GB, or a gigabyte of zeros in a megabyte."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("images.npy", npy_of(shape, bytes(length)))
    with pytest.raises(Damaged, match=r"claims images|would unpack"):
        everything(tmp_path, tmp_path / "a.npz")


def test_a_picture_in_an_archive_is_bounded_and_so_are_those_in_a_chunk(tmp_path, contents, monkeypatch):
    write_tar(tmp_path / "a.tar", contents[:9])
    monkeypatch.setattr(tars, "LARGEST", max(map(len, contents[:9])) - 1)
    found = everything(tmp_path, tmp_path / "a.tar")[1]
    assert 0 < sum(isinstance(one, Fault) for one in found) < 9
    whole = [one for one in found if not isinstance(one, Fault)]
    monkeypatch.setattr(tars, "LARGEST", sum(map(len, contents[:9])) // 3)
    assert max(len(chunk.names) for chunk in chunks(Piece("tar", str(tmp_path / "a.tar")), 7)) < 7
    assert set(whole) <= set(everything(tmp_path, tmp_path / "a.tar")[1]) == set(contents[:9])


def test_a_table_that_unpacks_to_far_more_is_refused(tmp_path, monkeypatch):
    table = pa.table({"image": [bytes(10**6) + bytes([row]) for row in range(4)]})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    assert len(everything(tmp_path, tmp_path / "a.parquet")[0]) == 4
    monkeypatch.setattr(tables, "UNPACKED", 10**6)
    with pytest.raises(Damaged, match="would unpack"):
        everything(tmp_path, tmp_path / "a.parquet")


def test_a_file_that_tells_of_more_rows_than_there_can_be(tmp_path, contents, monkeypatch):
    monkeypatch.setattr(tables, "column_in", lambda *_: ("image", 10**15))
    pq.write_table(pa.table({"image": contents[:2]}), tmp_path / "a.parquet")
    with pytest.raises(Unsupported, match="rows"):
        everything(tmp_path, tmp_path / "a.parquet")


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.parquet", "a.npz", "a.csv", "a.txt"])
def test_a_pipe_is_not_waited_for_and_a_device_has_no_end(tmp_path, name):
    """Alone and, where a folder is searched for it, in one."""
    os.mkfifo(tmp_path / name)
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / name).symlink_to("/dev/zero")
    for source in (
        tmp_path / name,
        tmp_path / "device" / name,
        *[tmp_path] * (not name.endswith(("csv", "txt", "npz"))),
    ):
        with pytest.raises(Unsupported, match="pipe"):
            everything(tmp_path, source)


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_a_line_without_an_end_is_no_path(tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        file.write(b"path\n")
        file.truncate(2**30)  # zeros that take no room on the disk
    with pytest.raises(Damaged, match="letters"):
        everything(tmp_path, tmp_path / name)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_note_in_an_archive_is_bounded(tmp_path, kind):
    """Long names and PAX records are unpacked into memory, of as many gigabytes as they say."""
    note = tarfile.TarInfo("note")
    note.type, note.size = kind, 2**24
    with gzip.open(tmp_path / "a.tar.gz", "wb", compresslevel=1) as file:
        file.write(note.tobuf(tarfile.GNU_FORMAT) + bytes(note.size))
    tracemalloc.start()
    _, (fault,) = everything(tmp_path, tmp_path / "a.tar.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "16,777,216 bytes" in fault.text
    assert peak < 2**23
    with pytest.raises(Damaged, match="16,777,216 bytes"):
        member(f"{tmp_path}/a.tar.gz::a.png", None)


def test_a_picture_that_a_table_repeats_in_every_row_is_one_in_memory(tmp_path, contents, monkeypatch):
    """A dictionary holds it once, and 256 rows at a time would have it 256 times."""
    large = pa.array([contents[0] + bytes(2**22)], pa.binary())
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(256, np.int32)), large)
    how = {"dictionary_pagesize_limit": 2**30, "store_schema": False}
    pq.write_table(pa.table({"image": column}), tmp_path / "a.parquet", compression="zstd", **how)
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    monkeypatch.setattr(tables, "LARGEST", 2**23)
    before, seen = pa.default_memory_pool().max_memory(), 0
    for chunk in chunks(Piece("parquet", str(tmp_path / "a.parquet"), 0, 256, "image"), 256):
        assert sum(map(len, chunk.images)) < 2**24
        seen += len(chunk.images)
    assert seen == 256
    assert member(f"{tmp_path}/a.parquet::image", 200) == large[0].as_py()
    assert pa.default_memory_pool().max_memory() - before < 2**26
    monkeypatch.setattr(tables, "LARGEST", 2**21)
    found = everything(tmp_path, tmp_path / "a.parquet", rows=100)[1]
    assert {one.text.partition(" bytes")[0] for one in found} == {f"the picture has {len(large[0].as_py()):,}"}
