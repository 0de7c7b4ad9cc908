"""Rows of `images` in a NumPy archive, read without the rest of it."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from prood.data.formats.pictures import LARGEST
from prood.errors import Damaged, Unsupported
from prood.reading import check_sizes

MEMBER = "images.npy"


def length(path: str) -> int:
    with _opened(path) as (_, shape, _):
        return shape[0]


def rows(path: str, start: int, count: int, size: int) -> Iterator[tuple[list[tuple[str, int | None]], NDArray[Any]]]:
    """These rows, as arrays of `size` images; of grey ones (N, H, W) each with its one channel."""
    with _opened(path) as (file, shape, dtype):
        row = math.prod(shape[1:]) * dtype.itemsize
        file.seek(start * row, 1)
        size = max(1, min(size, LARGEST // row))
        for first in range(start, start + count, size):
            wanted = min(size, start + count - first)
            content = file.read(wanted * row)
            if len(content) != wanted * row:
                raise Damaged(f"{path} ends before row {first + wanted}: copy it again")
            found = np.frombuffer(content, dtype).reshape(wanted, *shape[1:])
            references: list[tuple[str, int | None]] = [(f"npz:{path}", first + place) for place in range(wanted)]
            yield references, found[:, None] if found.ndim == 3 else found


@contextmanager
def _opened(path: str) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[Any]]]:
    """The member at its first row, its shape and its type."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MEMBER) as file:
            check_sizes(archive, path, os.path.getsize(path))
            version = npy.read_magic(file)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = header(file)
            if fortran or dtype != np.uint8 or len(shape) not in (3, 4):
                fault = f"{path} holds images of type {dtype} and shape {shape}"
                raise Unsupported(f"{fault}: store uint8 as (N, H, W), (N, H, W, C) or (N, C, H, W)")
            held, row = archive.getinfo(MEMBER).file_size - file.tell(), math.prod(shape[1:])
            if not 0 < row <= LARGEST or shape[0] * row != held:
                raise Damaged(f"{path} claims images of shape {shape}, but holds only {held:,} bytes")
            yield file, shape, dtype
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error, NotImplementedError) as error:
        hint = "write it with numpy.savez(path, images=…)"
        raise Damaged(f"cannot read images from {path} ({type(error).__name__}): {hint}") from None
