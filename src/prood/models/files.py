"""Models on disk: safetensors with the facts needed to rebuild and to judge them. No pickle is ever loaded.

A file may hold its weights in half precision. They are float32 once loaded, each exactly the number in the file: what
is certified is what is loaded.
"""

import copy
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialized
from torch import Tensor, nn

from prood.atomic import write_bytes
from prood.errors import BadValue, Damaged, Unsupported
from prood.extras import UPDATE
from prood.models.architectures import FORMAT, Metadata, build, check_kinds, spec_of
from prood.models.confidence import renamed
from prood.models.joint import ProoD
from prood.models.wrapped.module import wrapped_parts
from prood.models.wrapped.trust import trusting_code
from prood.pretrained import MODEL_FILE, RUN_FILE, find, model_path, place_of, title
from prood.reading import json_of

KEY, DIGEST = "prood", "sha256"

__all__ = [
    "MODEL_FILE",
    "RUN_FILE",
    "digest",
    "fingerprint",
    "load",
    "model_path",
    "place_of",
    "read_metadata",
    "rounded",
    "save",
    "title",
]


def save(model: nn.Module, path: Path | str, *, half: bool = False, **facts: Any) -> Metadata:
    """Write the model aside and rename; `facts` are fields of `Metadata`.

    The file of a wrapped classifier goes into the same folder, and is looked for there by `load`.
    With `half`, tensors of two or more dimensions are rounded to float16 in the file; biases, the vectors of batch norm
    and the shift stay float32. `rounded` gives the model that will be loaded.
    """
    if isinstance(model, ProoD):
        facts.setdefault("shift", model.shift.item())
    try:
        metadata = Metadata(architecture=spec_of(model), **renamed(facts))
    except ValueError as error:
        raise Unsupported(f"cannot save the model: {error}") from None
    values = {name: _stored(name, value) if half else value for name, value in model.state_dict().items()}
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in values.items()}
    for part in wrapped_parts(model):
        part.store(Path(path).parent)
    about = asdict(metadata)
    about[DIGEST] = digest(tensors, json.dumps(about))  # among the rest: of two entries a file may hold either first
    write_bytes(Path(path), serialized(tensors, metadata={KEY: json.dumps(about)}))
    return metadata


def rounded(model: nn.Module) -> nn.Module:
    """A copy of the model, in eval mode, with the weights that `load` gives after `save(half=True)`.

    It has no threshold, nor names of its classes: find the first with these weights.
    """
    again = copy.deepcopy(model).float().eval()
    again.load_state_dict({name: _stored(name, value) for name, value in model.state_dict().items()})
    if isinstance(again, ProoD):
        again.about = None
    return again


def _stored(name: str, value: Tensor) -> Tensor:
    """A tensor as a file in half precision holds it."""
    if not value.is_floating_point():
        return value
    if value.ndim < 2:
        return value.float()
    short = value.half()
    if not short.isfinite().all():
        wrong = value[~short.isfinite()][0].item()
        raise Unsupported(f"half precision cannot hold {wrong:g} in {name}: save the model with half=False")
    return short


def read_metadata(path: Path | str) -> Metadata:
    return _read(path, tensors=False)[0]


def load(
    path: Path | str, *, device: str | torch.device = "cpu", trust_code: bool = False
) -> tuple[nn.Module, Metadata]:
    """The model, in eval mode and float32, and its metadata; from a file, a run's folder or by a shipped name.

    With `trust_code`, a TorchScript classifier in the run's folder may run; without it, it is refused.
    """
    metadata, tensors = _read(path, tensors=True)
    with _no_larger_than(tensors, model_path(path)):
        model = build(metadata.architecture)
    if wrong := _mismatch(model.state_dict(), tensors):
        raise Damaged(f"{model_path(path)} does not hold the model that it describes: {wrong}")
    if endless := [name for name, value in tensors.items() if not value.isfinite().all()]:
        raise Damaged(f"{model_path(path)} holds NaN or infinite numbers in {endless[0]}: copy or train it again")
    try:
        model.load_state_dict(tensors)
    except BadValue as error:
        raise Damaged(f"{model_path(path)} holds a damaged model: {error}") from None
    with trusting_code(trust_code):
        for part in wrapped_parts(model):
            part.attach(model_path(path).parent)
    if isinstance(model, ProoD):
        model.about = metadata
    return model.to(device).eval(), metadata


@contextmanager
def _no_larger_than(tensors: Mapping[str, Tensor], file: Path) -> Iterator[None]:
    """Stop this thread from building a network that has far more weights or layers than the file has tensors for.

    A kilobyte may describe a network that no machine has the memory for. Whatever is put into a module is counted,
    before its weights are drawn; a builder may put there the same again a few times, or weights out of a package.
    """
    weights, parts = 4 * sum(value.numel() for value in tensors.values()) + 10**7, 50 * len(tensors) + 1000
    thread = threading.get_ident()

    def count(module: nn.Module, name: str, part: Tensor | nn.Module | None) -> None:
        nonlocal weights, parts
        if threading.get_ident() == thread:
            size = part.numel() if isinstance(part, Tensor) and not nn.parameter.is_lazy(part) else 0
            weights, parts = weights - size, parts - 1
            if weights < 0 or parts < 0:
                raise Damaged(f"{file} does not hold the model that it describes, a far larger one: do not use it")

    each = nn.modules.module
    with ExitStack() as hooks:
        for kind in ("parameter", "buffer", "module"):
            handle = getattr(each, f"register_module_{kind}_registration_hook")(count)
            hooks.callback(handle.remove)
        yield


def fingerprint(model: nn.Module) -> str:
    """16 hex digits of sha256 over the names, shapes and bytes of all tensors: which weights these are."""
    return digest(model.state_dict())[:16]


def digest(tensors: Mapping[str, Tensor], facts: str = "") -> str:
    """The sha256 over the names, types, shapes and bytes of tensors, and over what is said about them."""
    found = hashlib.sha256(facts.encode())
    for name, value in sorted(tensors.items()):
        found.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _read(path: Path | str, *, tensors: bool) -> tuple[Metadata, dict[str, Tensor]]:
    file = find(path)
    try:
        with safe_open(file, framework="pt") as opened:
            written = opened.metadata() or {}
            values = {name: opened.get_tensor(name) for name in opened.keys()} if tensors else {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise Damaged(f"{file} is damaged or not a safetensors file ({error}): copy or train it again") from None
    if KEY not in written:
        raise Damaged(f"{file} was not written by Prood: it lacks the description of its model")
    return _parse(written[KEY], file, values if tensors else None), values


def _parse(facts: str, file: Path, tensors: dict[str, Tensor] | None) -> Metadata:
    try:
        values = json_of(facts)
        stated = values.pop(DIGEST, None)  # older files have none
        if tensors is not None and stated not in (None, digest(tensors, json.dumps(values))):
            raise Damaged(f"{file} was changed after it was written, its checksum differs: copy or train it again")
        if int(values["format"]) > FORMAT:
            writer = f"Prood {values.get('version')}"
            raise Unsupported(f"{file} was written by {writer} in a newer format: {UPDATE}")
        values = renamed(values)
        names = {item.name for item in fields(Metadata)}
        values.setdefault("inside", next(iter(values.get("data", {})), None))  # older files do not say it
        about = Metadata(**{name: value for name, value in values.items() if name in names})
        check_kinds(about)
        return about
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{file} has an unreadable description of its model ({error!r}): train it again") from None


def _mismatch(expected: dict[str, Tensor], found: dict[str, Tensor]) -> str:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found or name not in expected:
            return f"{name} is {'unknown' if name in found else 'missing'}"
        old, new = expected[name], found[name]
        if old.shape != new.shape:
            return f"{name} has shape {tuple(new.shape)} instead of {tuple(old.shape)}"
        # A type is right whose every number is one of the expected type.
        same_kind = old.is_floating_point() == new.is_floating_point()
        if not same_kind or torch.promote_types(new.dtype, old.dtype) != old.dtype:
            return f"{name} has type {new.dtype} instead of {old.dtype}"
    return ""
