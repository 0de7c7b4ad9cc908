"""Pickles as Python 2 wrote them."""

import struct

import numpy as np
import pytest


def python2(value: object, multiarray: str = "numpy.core.multiarray") -> bytes:
    """What cPickle of Python 2 wrote for `value` in protocol 2, where a str is bytes."""
    remembered = 0

    def put() -> bytes:
        nonlocal remembered
        remembered += 1
        return b"q" + bytes([remembered]) if remembered < 256 else b"r" + struct.pack("<I", remembered)

    def many(parts: list[bytes], one: bytes, more: bytes) -> bytes:
        return parts[0] + one if len(parts) == 1 else b"(" + b"".join(parts) + more

    def write(value: object) -> bytes:
        if value is None or isinstance(value, bool):
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        if isinstance(value, int):
            if 0 <= value < 1 << 16:
                return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)
            return b"J" + struct.pack("<i", value)
        if isinstance(value, bytes):
            head = b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))
            return head + value + put()
        if isinstance(value, tuple):
            if len(value) > 3:
                return b"(" + b"".join(map(write, value)) + b"t" + put()
            return b"".join(map(write, value)) + [b")", b"\x85", b"\x86", b"\x87"][len(value)] + put()
        if isinstance(value, list):
            return b"]" + put() + (many([write(item) for item in value], b"a", b"e") if value else b"")
        if isinstance(value, dict):
            head = b"}" + put()
            return head + many([write(key) + write(item) for key, item in value.items()], b"s", b"u")
        assert isinstance(value, np.ndarray)
        fortran = value.ndim > 1 and value.flags.f_contiguous
        kind, data = value.dtype.str, value.tobytes("F" if fortran else "C")
        return b"".join(
            [
                b"c" + multiarray.encode() + b"\n_reconstruct\n" + put() + b"cnumpy\nndarray\n" + put(),
                write((0,)) + write(b"b") + b"\x87" + put() + b"R" + put(),
                b"(" + write(1) + write(value.shape),
                b"cnumpy\ndtype\n" + put() + write((kind[1:].encode(), 0, 1)) + b"R" + put(),
                write((3, kind[:1].encode(), None, None, None, -1, -1, 0)) + b"b",
                write(fortran) + write(data) + b"t" + put() + b"b",
            ]
        )

    return b"\x80\x02" + write(value) + b"."


@pytest.fixture(name="python2")
def _python2():
    return python2
