"""Models on disk: safetensors with the facts needed to rebuild and to judge them. No pickle is ever loaded."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from prood.atomic import replacing
from prood.errors import ProodError
from prood.models.architectures import build, spec_of
from prood.models.joint import ProoD
from prood.version import __version__

FORMAT = 1
KEY = "prood"
MODEL_FILE = "model.safetensors"


@dataclass(frozen=True)
class Metadata:
    """What a file says about its model. The normalisation stands among the architecture's arguments."""

    architecture: dict[str, Any]
    classes: list[str] | None = None
    shift: float | None = None
    eps: float | None = None
    recipe: dict[str, Any] | None = None
    seed: int | None = None
    data: dict[str, str] = field(default_factory=dict)  # name of each set used → fingerprint
    version: str = __version__
    format: int = FORMAT


def model_path(path: Path | str) -> Path:
    """The model file itself: `path`, or the one inside `path` if that is a run's folder."""
    path = Path(path)
    return path / MODEL_FILE if path.is_dir() else path


def save(model: nn.Module, path: Path | str, **facts: Any) -> Metadata:
    """Write the model aside and rename; `facts` are fields of `Metadata`."""
    if isinstance(model, ProoD):
        facts.setdefault("shift", model.shift.item())
    metadata = Metadata(architecture=spec_of(model), **facts)
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    with replacing(Path(path)) as aside:
        save_file(tensors, aside, metadata={KEY: json.dumps(asdict(metadata))})
    return metadata


def read_metadata(path: Path | str) -> Metadata:
    return _read(path, tensors=False)[0]


def load(path: Path | str, *, device: str | torch.device = "cpu") -> tuple[nn.Module, Metadata]:
    """The model, in eval mode, and its metadata, from a file or a run's folder."""
    metadata, tensors = _read(path, tensors=True)
    model = build(metadata.architecture)
    wrong = _mismatch(model.state_dict(), tensors)
    if wrong:
        raise ProodError(f"{model_path(path)} does not hold the model that it describes: {wrong}")
    model.load_state_dict(tensors)
    return model.to(device).eval(), metadata


def fingerprint(model: nn.Module) -> str:
    """16 hex digits of sha256 over the names, shapes and bytes of all tensors: which weights these are."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _read(path: Path | str, *, tensors: bool) -> tuple[Metadata, dict[str, torch.Tensor]]:
    file = model_path(path)
    if not file.is_file():
        raise ProodError(f"there is no model at {file}: give a run's folder or a .safetensors file")
    try:
        with safe_open(file, framework="pt") as opened:
            facts = (opened.metadata() or {}).get(KEY)
            values = {name: opened.get_tensor(name) for name in opened.keys()} if tensors else {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ProodError(f"{file} is damaged or no safetensors file ({error}): copy or train it again") from None
    if facts is None:
        raise ProodError(f"{file} was not written by Prood: it lacks the description of its model")
    return _parse(facts, file), values


def _parse(facts: str, file: Path) -> Metadata:
    try:
        values = json.loads(facts)
        if int(values["format"]) > FORMAT:
            raise ProodError(
                f"{file} was written by Prood {values.get('version')} in a newer format: "
                "update with 'pip install -U prood'"
            )
        known = {item.name for item in fields(Metadata)}
        return Metadata(**{name: value for name, value in values.items() if name in known})
    except (ValueError, KeyError, TypeError) as error:
        raise ProodError(f"{file} has an unreadable description of its model ({error!r}): train it again") from None


def _mismatch(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> str:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is unknown"
        if expected[name].shape != found[name].shape:
            return f"{name} has shape {tuple(found[name].shape)} instead of {tuple(expected[name].shape)}"
    return ""
