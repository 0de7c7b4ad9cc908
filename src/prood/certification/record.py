"""A certificate as a line of JSON.

It says: for every image u in [0, 1]^d within `eps` of the input, the value that the deployed network g returns for u,
in float32 and in any order of summation, is at most `bound`. The hashes say which image and which weights are meant.
"""

import hashlib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prood.errors import Unsupported
from prood.reading import json_of
from prood.version import __version__

FORMAT = 1
NORMS = ("linf", "l2", "l1")
METHODS = ("best", "ibp", "crown-ibp", "alpha-crown", "crown", "bab", "auto")
_VERSION = re.compile(r"\d+(\.\d+){1,3}[a-z0-9.+-]{0,30}")
_KINDS = {str: "a text", int: "a number that counts", float: "a finite number"}


@dataclass(frozen=True)
class ImageReference:
    """A row of an image set, or a picture's path with row None."""

    name: str
    row: int | None
    sha256: str


@dataclass(frozen=True)
class ModelReference:
    path: str
    sha256: str


@dataclass(frozen=True)
class Certificate:
    """`bound` is one of g, without the shift; `classes` and `confidence` are None for a bare discriminator.

    `confidence` follows from `bound`, the shift and the gate of the model, where it has one.
    """

    input: ImageReference
    model: ModelReference
    norm: str
    eps: float
    method: str
    bound: float
    shift: float = 0.0
    classes: int | None = None
    confidence: float | None = None
    seconds: float = 0.0
    arithmetic: str = "float32"
    version: str = __version__
    format: int = FORMAT
    digest: str = field(default="", compare=False)  # as read from a file, of all the rest

    def to_json(self) -> str:
        """One line in ASCII, for a file's name may be bytes other than text; floats read back as the same floats."""
        return json.dumps(asdict(replace(self, digest=self._digest())), allow_nan=False)

    @property
    def intact(self) -> bool:
        """Whether the line is as it was written. A forger may write a new digest: all else is checked as well."""
        return self.digest in ("", self._digest())

    def _digest(self) -> str:
        facts = asdict(self)
        del facts["digest"]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A ValueError says what is wrong with the text."""
        values = json_of(text, object_pairs_hook=_once)
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
        if _checked("format", values.get("format"), int) > FORMAT:
            raise ValueError(f"it was written by Prood {values.get('version')} in a newer format: update Prood")
        certificate: Self = _checked("text", values, cls)
        if not certificate.digest:
            raise ValueError("it has no digest")
        certificate._check(values)
        return certificate

    def _check(self, values: dict[str, Any]) -> None:
        """What the verifier does not look at is at least what Prood may have written: a remark, not a message."""
        known = asdict(self)
        for names, given in ((known, values), *((known[key], values[key]) for key in ("input", "model"))):
            if more := [name for name in given if name not in names]:
                raise ValueError(f"it states {more[0]!r:.40}, which no certificate does")
        for name, words in (("norm", NORMS), ("method", METHODS)):
            if known[name] not in words:
                raise ValueError(f"its {name} is {known[name]!r:.40}, not one of {', '.join(words)}")
        for name in ("eps", "seconds"):
            if known[name] < 0:
                raise ValueError(f"its {name} is negative")
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise ValueError(f"its confidence is {self.confidence}, not between 0 and 1")
        if not _VERSION.fullmatch(self.version):
            raise ValueError(f"its version is {self.version!r:.40}, not one like {__version__}")


def _checked(name: str, value: Any, kind: Any) -> Any:
    """What JSON gave, as the type that a field of a certificate has: a class, one of these or None, or a dataclass."""
    if isinstance(kind, UnionType):
        return None if value is None else _checked(name, value, kind.__args__[0])
    if kind not in _KINDS and isinstance(value, dict):
        return kind(**{one.name: _checked(one.name, value.get(one.name), one.type) for one in fields(kind)})
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:  # false for NaN
        return float(value)
    if kind is str and type(value) is str and not _is_name(value):
        raise ValueError(f"its {name} is {value!r:.40}, not a text with at most 4,096 letters")
    if (kind is str and type(value) is str) or (kind is int and type(value) is int and 0 <= value < 2**53):
        return value
    raise ValueError(f"its {name} is {value!r:.40}, not {_KINDS.get(kind, 'an object')}")


def _is_name(text: str) -> bool:
    """Whether it may be the name of a file. Bytes other than text are surrogates in it, and nothing else is."""
    try:
        return len(text) <= 4096 and "\0" not in text and isinstance(os.fsencode(text), bytes)
    except UnicodeEncodeError:
        return False


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys: one reader takes the first value, another the last."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key occurs twice")
    return values


def image_sha256(image: NDArray[np.float32]) -> str:
    """SHA-256 of the text `float32(C, H, W)` and the little-endian bytes of the pixels in [0, 1]."""
    if image.dtype != np.float32:
        raise Unsupported(f"an image is hashed as float32, not as {image.dtype}")
    digest = hashlib.sha256(f"float32{tuple(image.shape)}".encode())
    digest.update(np.ascontiguousarray(image, dtype="<f4").tobytes())
    return digest.hexdigest()


def file_sha256(path: Path | str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
