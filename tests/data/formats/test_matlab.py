import io
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from prood.data.formats.arrays import read_mat
from prood.errors import ProodError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 5, 3, 2), dtype=np.uint8)
LABELS = np.array([[1], [10]], dtype=np.uint8)


@pytest.mark.parametrize("compressed", [True, False])
def test_reads_the_variables_it_is_asked_for(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"X": PIXELS, "y": LABELS, "more": 3}, do_compression=compressed)
    read = read_mat(path, "X", "y")
    assert list(read) == ["X", "y"]
    assert np.array_equal(read["X"], PIXELS)
    assert np.array_equal(read["y"], LABELS)


def test_reads_a_list_of_structs(tmp_path: Path) -> None:
    rows = np.array([("a.jpg", 2), ("b.jpg", 7)], dtype=[("fname", object), ("class", int)])
    savemat(tmp_path / "a.mat", {"annotations": rows})
    read = read_mat(tmp_path / "a.mat", "annotations")["annotations"]
    assert [row["fname"].item() for row in read.ravel()] == ["a.jpg", "b.jpg"]
    assert [row["class"].item() for row in read.ravel()] == [2, 7]


def refused(path: Path, *names: str) -> str:
    with pytest.raises(ProodError) as caught:
        read_mat(path, *names)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def test_refuses_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    assert "no file" in refused(path, "X")
    savemat(path, {"X": PIXELS})
    assert "no readable variable 'y'" in refused(path, "X", "y")
    assert "no file" in refused(tmp_path, "X")
    assert "no file" in refused(path / "inside", "X")


@pytest.mark.parametrize("content", [b"", b"not a MATLAB file", b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" * 50])
def test_refuses_another_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.mat"
    path.write_bytes(content)
    assert "fetch" in refused(path, "X")


def test_refuses_a_text_in_place_of_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SciPy gives, besides a warning, for a variable that it cannot make sense of."""
    (tmp_path / "a.mat").write_bytes(b"")
    monkeypatch.setattr("scipy.io.loadmat", lambda *_, **__: {"X": "Read error: unknown type"})
    assert "no readable variable 'X'" in refused(tmp_path / "a.mat", "X")


def test_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert "pip install '.[data]'" in refused(tmp_path / "a.mat", "X")


WHOLE = io.BytesIO()
savemat(WHOLE, {"X": PIXELS}, do_compression=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(WHOLE.getvalue()) - 1), st.integers(1, 255), st.booleans())
def test_a_damaged_file_is_refused_or_read_as_it_was(tmp_path: Path, at: int, by: int, cut: bool) -> None:
    damaged = bytearray(WHOLE.getvalue())
    if cut:
        del damaged[at:]
    else:
        damaged[at] ^= by
    path = tmp_path / "damaged.mat"
    path.write_bytes(damaged)
    try:
        read = read_mat(path, "X")
    except ProodError as error:
        assert "\n" not in str(error)  # noqa: PT017 – both outcomes are right
        return
    assert not cut
    assert np.array_equal(read["X"], PIXELS)
