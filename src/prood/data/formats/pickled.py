"""The plain contents of a Python 2 pickle, found without running anything that it names.

A pickle is a program, and some public sets are published as one. Theirs builds dicts, lists, bytes, numbers and uint8
arrays; here it may do only that. Every name in it stands for one of our own inert objects, never for what it names.
"""

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from prood.errors import ProodError

# What occurs in protocol 2 for such contents. So there is no instruction to look up an object by number (EXT1), to
# make an instance of a class (NEWOBJ) or to find a name that is computed (STACK_GLOBAL).
_INSTRUCTIONS = (
    *("PROTO", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("SHORT_BINSTRING", "BINSTRING", "BINUNICODE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1"),
    *("TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    *("GLOBAL", "REDUCE", "BUILD"),
)


def read_pickled(path: Path) -> dict[bytes, object]:
    """The dict in the file: bytes for the strings of Python 2, NumPy arrays of uint8, lists, numbers."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise ProodError(f"there is no file {path}: fetch the set again: 'prood data fetch NAME --again'") from error
    except OSError as error:
        raise ProodError(f"cannot read {path}: {error.strerror}") from error
    try:
        _check(data)
        content = _Plain(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"a {type(content).__name__} instead of a dict")
        return {key: value.array() if isinstance(value, _Array) else value for key, value in content.items()}
    # Instructions that do not fit together raise anything: IndexError, TypeError, AttributeError, MemoryError …
    except Exception as error:
        why = " ".join(str(error).split())[:100] or type(error).__name__
        raise ProodError(
            f"{path} is damaged or another file ({why}): fetch the set again with 'prood data fetch NAME --again'"
        ) from error


def _check(data: bytes) -> None:
    for instruction, argument, _ in pickletools.genops(data):
        if instruction.name not in _INSTRUCTIONS:
            raise pickle.UnpicklingError(f"instruction {instruction.name}")
        # The unpickler makes room for as many remembered objects as the highest number says: up to 64 GB.
        if instruction.name == "LONG_BINPUT" and (not isinstance(argument, int) or argument > len(data)):
            raise pickle.UnpicklingError(f"remembered object {argument}")


class _Plain(pickle.Unpickler):
    """Maps the names in a pickle to stand-ins of ours."""

    def find_class(self, module: str, name: str) -> object:
        kind = _STAND_INS.get(f"{module}.{name}")
        if kind is None:
            raise pickle.UnpicklingError(f"the name {module}.{name}")
        # A new one each time, so that nothing a file does to it outlives the file.
        return kind()


class _Inert:
    """Can be called and given a state, as pickles do with what they name; both are refused unless overridden."""

    __slots__ = ()

    def __call__(self, *arguments: object) -> object:
        raise pickle.UnpicklingError(f"a call of {type(self).__name__}")

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError(f"a state for {type(self).__name__}")


class _Encode(_Inert):
    """For `_codecs.encode`: how Python 3 writes bytes in protocol 2."""

    __slots__ = ()

    def __call__(self, *arguments: object) -> bytes:
        text, encoding = arguments
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError(f"text in {encoding!r}")
        return text.encode("latin1")


class _Type(_Inert):
    """For `numpy.dtype` and for the type it makes: uint8, or it is refused."""

    __slots__ = ("made",)

    def __init__(self, made: bool = False) -> None:
        self.made = made

    def __call__(self, *arguments: object) -> "_Type":
        if self.made or arguments[:1] not in ((b"u1",), ("u1",)):
            raise pickle.UnpicklingError(f"an array of type {arguments[:1]}")
        return _Type(made=True)

    def __setstate__(self, state: object) -> None:
        """Byte order, fields and alignment: bytes have none of them."""


class _Reconstruct(_Inert):
    """For `numpy.core.multiarray._reconstruct`, which makes an array that has yet to get its contents."""

    __slots__ = ()

    def __call__(self, *arguments: object) -> "_Array":
        return _Array()


class _Array(_Inert):
    """An array in the making: its state is (version, shape, type, whether in Fortran order, bytes)."""

    __slots__ = ("state",)

    def __setstate__(self, state: object) -> None:
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        match self.state:
            case (int(), tuple(shape), _Type(made=True), (bool() | int()) as fortran, bytes(data)):
                if all(isinstance(size, int) and size >= 0 for size in shape) and math.prod(shape) == len(data):
                    return np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")
        return _refuse()


def _refuse() -> NoReturn:
    raise pickle.UnpicklingError("an array whose bytes and shape do not agree")


_STAND_INS: dict[str, type[_Inert]] = {
    "numpy.core.multiarray._reconstruct": _Reconstruct,
    "numpy._core.multiarray._reconstruct": _Reconstruct,
    "numpy.ndarray": _Inert,
    "numpy.dtype": _Type,
    "_codecs.encode": _Encode,
}
