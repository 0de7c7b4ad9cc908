"""A detector that travels to other processes: as a path, or as the bytes of its files. No pickle file is ever read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from prood.detector import Detector
from prood.errors import NotFound
from prood.models import model_path, read_metadata, spec_of
from prood.models.wrapped.trust import check_trust, trusting_code

Stamp = tuple[int, int] | None


@dataclass(frozen=True)
class Parcel:
    """Where a detector is, or what its files hold; `trust_code` lets its TorchScript classifier run."""

    path: str | None = None
    files: tuple[tuple[str, bytes], ...] = ()
    trust_code: bool = False

    @classmethod
    def at(cls, path: Path | str, *, trust_code: bool = False) -> Parcel:
        """A model by its path or shipped name; a path is made absolute, for a worker may run in another folder."""
        check_code(read_metadata(path).architecture, trust_code)
        return cls(os.path.abspath(path) if Path(path).exists() else str(path), trust_code=trust_code)

    @classmethod
    def of(cls, detector: Detector, *, trust_code: bool = False) -> Parcel:
        """The files that `Detector.save` writes, a wrapped classifier's among them."""
        check_code(spec_of(detector.model), trust_code)
        with tempfile.TemporaryDirectory(prefix="prood-") as folder:
            detector.save(Path(folder, "detector"))
            files = sorted(Path(folder, "detector").iterdir())
            return cls(files=tuple((file.name, file.read_bytes()) for file in files), trust_code=trust_code)

    def open(self, device: str) -> Detector:
        """The detector; a process opens it once for all that ask, and again if its file was replaced."""
        return _opened(self, device, self._stamp())

    def _stamp(self) -> Stamp:
        if self.path is None:
            return None
        file = model_path(self.path)
        try:
            about = file.stat()
        except OSError:
            raise NotFound(f"there is no model at {file}: workers must see the same path as the caller") from None
        return about.st_mtime_ns, about.st_size


@lru_cache(maxsize=2)
def _opened(parcel: Parcel, device: str, stamp: Stamp) -> Detector:
    how: dict[str, Any] = {"device": device, "trust_code": parcel.trust_code}
    if parcel.path is not None:
        return Detector.load(parcel.path, **how)
    with tempfile.TemporaryDirectory(prefix="prood-") as folder:
        for name, content in parcel.files:
            Path(folder, name).write_bytes(content)
        return Detector.load(folder, **how)


def check_code(architecture: Mapping[str, Any], trust_code: bool) -> None:
    """Refuse a model with a TorchScript classifier before it is sent anywhere, unless the caller trusts it."""
    if _has_code(architecture):
        with trusting_code(trust_code):
            check_trust()


def _has_code(spec: Any) -> bool:
    if isinstance(spec, Mapping):
        runs_code = spec.get("name") == "wrapped" and spec.get("kind") == "torchscript"
        return runs_code or any(_has_code(value) for value in spec.values())
    return isinstance(spec, list | tuple) and any(_has_code(value) for value in spec)
