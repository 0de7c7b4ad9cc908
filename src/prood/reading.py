"""Files that somebody else may have made: regular ones, JSON of bounded depth, archives of bounded size.

A pipe would be waited for, a device has no end, and a small file may unpack to more than the machine has.
"""

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from prood.errors import Damaged, NotFound, Unsupported

GIB = 2**30
LARGEST = 4 * GIB
"""Bytes of a file that is read as one."""

UNPACKED, RATIO = GIB // 2, 64
"""What an archive may unpack to: the larger of a number of bytes and a multiple of its own size."""

DEEPEST = 64
"""Lists and objects inside each other."""


def regular(path: Path | str) -> BinaryIO:
    """A regular file, opened; the system's own errors pass."""
    try:  # a pipe that nobody writes to is opened without waiting, and then refused
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:
        raise NotFound(f"{str(path)!r:.200} is not a valid name for a file: choose another name") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unsupported(f"{path} is a pipe, a device or a folder: give a regular file")
    return open(descriptor, "rb")


def check_regular(path: Path | str) -> None:
    """For a library that opens the file itself."""
    regular(path).close()


def content(path: Path | str, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file."""
    with regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise Unsupported(f"{path} has {size:,} bytes: at most {largest:,} are read")
        return file.read(max(size, 2**16))  # files of the system have no size


def text(path: Path | str, largest: int = LARGEST) -> str:
    """UTF-8; a ValueError if it is not."""
    return content(path, largest).decode()


def json_of(written: str | bytes, **how: Any) -> Any:
    """`json.loads`, whose every fault is a ValueError, and which refuses what is nested so deeply that others fail."""
    try:
        value = json.loads(written, **how)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, list | dict)]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return value


def check_sizes(archive: zipfile.ZipFile, name: Path | str, size: int) -> None:
    """Refuse a zip archive of `size` bytes that would unpack to far more: its directory says so before it is read.

    `zipfile` unpacks no more of a member than the directory says.
    """
    unpacked, largest = sum(member.file_size for member in archive.infolist()), max(UNPACKED, RATIO * size)
    if unpacked > largest:
        found = f"{size / 2**20:.1f} MiB would unpack to {unpacked / 2**20:,.0f} MiB"
        raise Damaged(f"{name}: {found}, and {largest / 2**20:,.0f} MiB are allowed: store it with less compression")
