"""Certificates in files of any number: what is read is what was written, and any of them by its number."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prood.certification import Certificate, ImageReference, ModelReference, append
from prood.certification.files import Lines, Table, files
from prood.errors import Damaged, NotFound, ProodError


def one(number: int) -> Certificate:
    facts = {"norm": "linf", "eps": 0.1, "method": "ibp", "bound": float(np.float32(number))}
    return Certificate(ImageReference("digits:test", number, "ab"), ModelReference("run", "cd"), **facts)


@pytest.fixture
def folder(tmp_path) -> Path:
    """19 certificates: seven lines, and a table of two radii whose third and sixth image could not be read."""
    place = tmp_path / "certs"
    append(place / "a.jsonl", *map(one, range(7)))
    (place / "a.jsonl").write_text((place / "a.jsonl").read_text().replace("\n", "\n\n", 2))
    rows = [(None, None) if row in (2, 5) else (one(7 + row), one(100 + row)) for row in range(8)]
    names = ("certificate_0.1", "certificate_0.2")
    cells = {name: [pair[at] and pair[at].to_json() for pair in rows] for at, name in enumerate(names)}
    pq.write_table(pa.table({"image": list("abcdefgh"), **cells}), place / "b.parquet", row_group_size=3)
    (place / "_prood").mkdir()
    (place / "_prood" / "progress.jsonl").write_text("{}\n")
    (place / ".c.jsonl.part").write_text("{}\n")
    return place


def test_a_folder_is_all_its_files_and_nothing_else(folder):
    found = files(folder)
    assert [(type(file), file.path.name, file.count()) for file in found] == [
        (Lines, "a.jsonl", 7),
        (Table, "b.parquet", 12),
    ]
    rows = [claim.certificate().input.row for file in found for claim in file.claims()]
    assert rows[:7] == list(range(7))
    assert sorted(rows[7:]) == [7, 8, 10, 11, 13, 14, 100, 101, 103, 104, 106, 107]


def test_any_of_them_is_found_by_its_number(folder):
    for file in files(folder):
        whole = list(file.claims())
        for numbers in ([], [0], [len(whole) - 1], [1, 2, 5], range(len(whole))):
            assert list(file.claims(numbers)) == [whole[number] for number in numbers]


def test_a_place_says_where_to_look(folder):
    lines, table = files(folder)
    assert [claim.place for claim in lines.claims()][2] == f"line 5 of {folder}/a.jsonl"
    (claim,) = table.claims([6])
    row = int(claim.place.split(",")[0].removeprefix("row "))
    cell = pq.read_table(folder / "b.parquet")[claim.place.split()[3]][row].as_py()
    assert cell.encode() == claim.line


def test_a_cut_last_line_is_left_out_of_the_count_as_well(folder):
    path = folder / "a.jsonl"
    path.write_text(path.read_text() + one(9).to_json()[:50])
    (file, _) = files(folder)
    assert file.count() == len(list(file.claims())) == 7
    assert "line 10" in file.note
    path.write_text(path.read_text() + "\n")  # now somebody wrote it so
    with pytest.raises(Damaged, match="line 10"):
        [claim.certificate() for claim in Lines(path).claims()]


def test_what_holds_no_certificates_is_named(tmp_path, folder):
    pq.write_table(pa.table({"image": ["a"]}), tmp_path / "scores.parquet")
    pq.write_table(pa.table({"certificate": [1]}), tmp_path / "numbers.parquet")
    (tmp_path / "cut.parquet").write_bytes((folder / "b.parquet").read_bytes()[:-9])
    (tmp_path / "empty").mkdir()
    for name in ("scores.parquet", "numbers.parquet", "cut.parquet", "empty"):
        with pytest.raises(ProodError, match=name):
            [list(file.claims()) for file in files(tmp_path / name)]


def test_text_that_is_none_is_no_certificate(tmp_path):
    places = pa.py_buffer(np.array([0, 2], "<i4"))
    cells = pa.Array.from_buffers(pa.string(), 1, [None, places, pa.py_buffer(b"\xff\xfe")])
    pq.write_table(pa.table({"certificate": cells}), tmp_path / "t.parquet")
    (claim,) = Table(tmp_path / "t.parquet").claims()
    with pytest.raises(Damaged, match="row 0"):
        claim.certificate()


@pytest.mark.parametrize("kind", ["lines", "parquet"])
def test_memory_does_not_grow_with_the_number(tmp_path, kind):
    """What Python holds of 8 MB; Arrow holds a batch."""
    text, peaks = one(1).to_json(), []
    for count in (2000, 20_000):
        if kind == "lines":
            path = tmp_path / f"{count}.jsonl"
            path.write_text(f"{text}\n" * count)
        else:
            path = tmp_path / f"{count}.parquet"
            pq.write_table(pa.table({"certificate": [text] * count}), path, row_group_size=500)
        (file,) = files(path)
        tracemalloc.start()
        assert file.count() == count == sum(1 for _ in file.claims())
        assert len(list(file.claims([0, count - 1]))) == 2
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 2**18


def test_a_text_that_a_table_repeats_in_every_row_is_one_in_memory(tmp_path):
    """A file of two kilobytes, whose rows had 64 GiB at a time."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1024, np.int32)), pa.array(["x" * 2**22]))
    how = {"dictionary_pagesize_limit": 2**30, "store_schema": False, "compression": "zstd"}
    pq.write_table(pa.table({"certificate": column}), tmp_path / "a.parquet", **how)
    before = pa.default_memory_pool().max_memory()
    (file,) = files(tmp_path)
    assert file.count() == 1024
    assert len(next(iter(file.claims([1000]))).line) == 2**22
    assert pa.default_memory_pool().max_memory() - before < 2**26


def test_a_folder_that_is_empty_has_nothing_to_verify(tmp_path):
    with pytest.raises(NotFound):
        files(tmp_path)
