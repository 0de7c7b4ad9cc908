"""Files of others: no pipe is waited for, no device read to its end, and nothing is deeper than those who read it."""

import json
import os
from pathlib import Path

import pytest

from prood.errors import NotFound, Unsupported
from prood.reading import DEEPEST, content, json_of


def test_only_regular_files_of_bounded_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert content(tmp_path / "file") == b"abc"
    with pytest.raises(Unsupported, match="at most 2"):
        content(tmp_path / "file", 2)
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        with pytest.raises(Unsupported, match="regular file"):
            content(place)
    for name in ("a\0b", "\ud800"):
        with pytest.raises(NotFound):
            content(name)
    with pytest.raises(FileNotFoundError):
        content(tmp_path / "none")


def test_json_is_bounded_in_depth() -> None:
    nested = "[" * DEEPEST + "]" * DEEPEST
    assert json_of(nested) == json.loads(nested)
    for text in (f"[{nested}]", "[" * 10**6, '{"a":' * 10**5, "[" * 2000 + "]" * 2000, "{", b"\xff"):
        with pytest.raises(ValueError, match=r"nested|Expecting|decode"):
            json_of(text)
