"""Classifiers that are files: ONNX, TorchScript, torch.export. Always opened from bytes whose hash was checked."""

import hashlib
import importlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prood import reading
from prood.errors import Damaged, MissingPackage, ProodError, Unsupported, first_line
from prood.extras import installing
from prood.models.wrapped.archives import archive_kind, checked_export
from prood.models.wrapped.preprocessing import Preprocessing
from prood.models.wrapped.trust import check_trust

ENDINGS = {"onnx": ".onnx", "torchscript": ".pt", "export": ".pt2"}
_EXPORT = installing("export")
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


@dataclass(frozen=True)
class Program:
    """An opened file: what to call, and what it says of its input.

    `shape` is (images, …) with None for an axis of any length, or None where the file is silent.
    """

    run: Callable[[Tensor], Any]
    network: nn.Module | None  # what has to be moved to a device
    shape: tuple[int | None, ...] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Source:
    """A classifier and what it says of itself: a network from a package or of our own, or the program in a file.

    `content` are the bytes that the program was opened from; `model` is what the network is built from again.
    """

    kind: str
    network: nn.Module | None = None
    model: Mapping[str, Any] | None = None
    path: Path | None = None
    content: bytes | None = None
    program: Program | None = None
    preprocessing: Preprocessing | None = None
    names: tuple[str, ...] | None = None
    output: str | int | None = None


def imported(name: str, install: str) -> Any:
    """Somebody else's module, or one line that says what to install."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision beside a torch that it was not built for
        fault = f"this classifier needs {name}, which cannot be imported ({first_line(error)})"
        raise MissingPackage(f"{fault}: install it with {install}") from None


@contextmanager
def in_one_line(fault: str, kind: type[ProodError] = Unsupported) -> Iterator[None]:
    """Whatever foreign code raises becomes one line: no network, files that are missing, a package's own errors."""
    try:
        yield
    except ProodError:
        raise
    except Exception as error:
        raise kind(f"{fault}: {first_line(error)}") from None


def kind_of(path: Path, content: bytes) -> str:
    """Which of `ENDINGS` the file is, by what it holds; a file of bare weights is refused."""
    if path.suffix == ".onnx":
        return "onnx"
    kind = archive_kind(content)
    if kind in ENDINGS:
        return kind
    if kind == "weights" or path.suffix in (".pth", ".ckpt", ".bin"):
        advice = "export the model to ONNX or .pt2, or give --weights FILE.safetensors to torchvision:NAME or timm:NAME"
        raise Unsupported(f"{path} holds weights without a network, in a pickle, which Prood never loads: {advice}")
    raise Unsupported(f"{path} is neither ONNX (.onnx) nor TorchScript (.pt) nor an exported program (.pt2)")


def content_of(path: Path) -> bytes:
    """The file as one: an ONNX graph with its weights in files beside it is put together."""
    content = reading.content(path)
    if path.suffix != ".onnx":
        return content
    onnx = imported("onnx", _EXPORT)
    with in_one_line(f"cannot read {path} as ONNX", Damaged):
        graph = onnx.load_model_from_string(content)
        if any(one.data_location == 1 for one in onnx.external_data_helper._get_all_tensors(graph)):
            content = onnx.load(path).SerializeToString()
    return content


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def open_program(kind: str, content: bytes) -> Program:
    """The program in these bytes, in eval mode and on the CPU; its weights are constants."""
    opener = {"onnx": _open_onnx, "torchscript": _open_torchscript, "export": _open_export}[kind]
    with in_one_line(f"the classifier's file cannot be opened as {kind}"):
        program = opener(content)
    for parameter in program.network.parameters() if program.network is not None else ():
        parameter.requires_grad_(False)
    return program


def _open_onnx(content: bytes) -> Program:
    runtime = imported("onnxruntime", _EXPORT)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type not in _TYPES:
        listed = ", ".join(f"{one.name} ({one.type})" for one in inputs)
        raise Unsupported(f"the ONNX classifier takes {listed}: it must take one batch of floating-point images")
    name, kind = inputs[0].name, _TYPES[inputs[0].type]
    outputs = [one.name for one in session.get_outputs()]

    def run(images: Tensor) -> dict[str, Tensor]:
        if images.requires_grad and torch.is_grad_enabled():
            raise Unsupported("onnxruntime has no gradients: attack it by 'prood evaluate' with --attacks square")
        values = session.run(outputs, {name: np.ascontiguousarray(images.cpu().numpy().astype(kind))})
        # Sequences and maps, as scikit-learn's exporters add them, are not tensors.
        arrays = {key: value for key, value in zip(outputs, values, strict=True) if isinstance(value, np.ndarray)}
        return {key: torch.from_numpy(value).to(images.device) for key, value in arrays.items()}

    axes = tuple(axis if isinstance(axis, int) and axis > 0 else None for axis in inputs[0].shape)
    return Program(run, None, axes or None, dict(session.get_modelmeta().custom_metadata_map))


def _open_torchscript(content: bytes) -> Program:
    check_trust()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's word on TorchScript is for those who export
        network = torch.jit.load(io.BytesIO(content), map_location="cpu")  # type: ignore[no-untyped-call]
    network.eval()
    return Program(network, network)


def _open_export(content: bytes) -> Program:
    program = torch.export.load(io.BytesIO(checked_export(content)))
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise Unsupported(f"the exported program takes {len(names)} inputs: it must take one batch of images")
    (entry,) = (node for node in program.graph.nodes if node.op == "placeholder" and node.name == names[0])
    shape = tuple(axis if isinstance(axis, int) else None for axis in entry.meta["val"].shape)
    network = program.module()
    return Program(network, network, shape)
