import copyreg
import os
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prood.data.formats.pickled import read_pickled
from prood.errors import ProodError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 200), dtype=np.uint8)
CONTENT = {b"data": PIXELS, b"labels": [6, 300, -1], b"batch_label": b"training batch 1 of 5", b"filenames": [b"a.png"]}
NAMES = [b"airplane", b"automobile", b"bird", b"cat", b"deer", b"dog", b"frog", b"horse", b"ship", b"truck"]

Writer = Callable[..., bytes]


def written(folder: Path, data: bytes) -> Path:
    path = folder / "batch"
    path.write_bytes(data)
    return path


def refused(folder: Path, data: bytes) -> str:
    path = written(folder, data)
    with pytest.raises(ProodError, match="fetch the set again") as caught:
        read_pickled(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_our_writer_writes_what_python_2_wrote(python2: Writer) -> None:
    names = {b"num_cases_per_batch": 10000, b"label_names": NAMES, b"num_vis": 3072}
    # The size of batches.meta in the published archive.
    assert len(python2(names)) == 158
    # The whole language: the real unpickler reads the same content, and strings are strings of Python 2.
    read = pickle.loads(python2(CONTENT), encoding="bytes")
    assert np.array_equal(read.pop(b"data"), PIXELS)
    assert read == {key: value for key, value in CONTENT.items() if key != b"data"}
    used = {instruction.name for instruction, _, _ in pickletools.genops(python2(CONTENT))}
    assert {"PROTO", "SHORT_BINSTRING", "BINSTRING", "GLOBAL", "REDUCE", "BUILD"} <= used
    assert not {"BINUNICODE", "SHORT_BINBYTES", "BINBYTES", "STACK_GLOBAL"} & used


@pytest.mark.parametrize("multiarray", ["numpy.core.multiarray", "numpy._core.multiarray"])
@pytest.mark.parametrize("pixels", [PIXELS, np.asfortranarray(PIXELS), PIXELS[0]])
def test_reads_what_python_2_wrote(tmp_path: Path, python2: Writer, multiarray: str, pixels: np.ndarray) -> None:
    data = python2(CONTENT | {b"data": pixels}, multiarray)
    assert multiarray.encode() in data
    read = read_pickled(written(tmp_path, data))
    array = read.pop(b"data")
    assert type(array) is np.ndarray
    assert array.dtype == np.uint8
    assert np.array_equal(array, pixels)
    assert read == {key: value for key, value in CONTENT.items() if key != b"data"}


@pytest.mark.parametrize("multiarray", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_reads_what_python_3_writes_in_protocol_2(tmp_path: Path, multiarray: bytes) -> None:
    data = pickle.dumps(CONTENT, protocol=2)
    for spelling in (b"numpy.core.multiarray", b"numpy._core.multiarray"):
        data = data.replace(spelling, multiarray)
    assert np.array_equal(read_pickled(written(tmp_path, data))[b"data"], PIXELS)


class Attack:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_program_in_a_pickle_does_not_run(tmp_path: Path, protocol: int) -> None:
    folder = tmp_path / "made"
    data = pickle.dumps({b"data": Attack(folder)}, protocol=protocol)
    pickle.loads(data)
    assert folder.is_dir(), "the attack works against pickle itself"
    folder.rmdir()
    refused(tmp_path, data)
    assert not folder.exists()


def test_a_registered_extension_does_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    module = os.mkdir.__module__
    data = b"\x80\x02\x82\xf0U" + bytes([len(str(folder))]) + str(folder).encode() + b"\x85R."
    copyreg.add_extension(module, "mkdir", 0xF0)
    try:
        pickle.loads(data)  # from now on the unpickler has it at hand and does not ask for the name again
        folder.rmdir()
        assert "EXT1" in refused(tmp_path, data)
    finally:
        copyreg.remove_extension(module, "mkdir", 0xF0)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x80\x02cos\nsystem\nU\x04true\x85R.", "os.system"),
        (b"\x80\x02cbuiltins\neval\n.", "builtins.eval"),
        (b"\x80\x02cnumpy\nload\n.", "numpy.load"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\n.", "scalar"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "call"),
        (b"\x80\x02cnumpy\nndarray\n}U\x01aK\x01sb.", "state"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", "rot13"),
        (b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.", "type"),
        (b"(ios\nsystem\n.", "INST"),
        (b"\x80\x02]r\xff\xff\xff\xff.", "4294967295"),
        (b"\x80\x02]q\x01.", "list instead of a dict"),
        (b"\x80\x02}", ""),
        (b"\x80\x02e.", ""),
        (b"", ""),
        (b"<html>not found</html>", ""),
    ],
)
def test_refuses_everything_else(tmp_path: Path, data: bytes, fault: str) -> None:
    assert fault in refused(tmp_path, data)


def test_refuses_other_arrays(tmp_path: Path, python2: Writer) -> None:
    assert "type" in refused(tmp_path, python2({b"data": np.zeros(3)}))
    assert "do not agree" in refused(tmp_path, python2({b"data": PIXELS}).replace(b"K\x03K\xc8", b"K\x03K\xc7"))


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ProodError, match="there is no file"):
            read_pickled(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.integers(0, 10**6), st.integers(1, 255), st.booleans())
def test_a_damaged_file_is_refused_or_plain(tmp_path: Path, python2: Writer, at: int, by: int, cut: bool) -> None:
    damaged = bytearray(python2({b"data": PIXELS[0, :9], b"labels": [1, 2]}))
    at %= len(damaged)
    if cut:
        del damaged[at:]
    else:
        damaged[at] ^= by
    try:
        read = read_pickled(written(tmp_path, bytes(damaged)))
    except ProodError as error:
        assert "\n" not in str(error)  # noqa: PT017 – a flip among the pixels cannot be seen
        return
    assert not cut
    assert {type(value) for value in read.values()} <= {np.ndarray, list}
