"""A foreign classifier as a module that takes the joint model's images and returns logits, and its file on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prood.atomic import write_bytes
from prood.errors import BadValue, Damaged, Mismatch, NoAccess, NotFound, UnknownName, Unsupported, first_line
from prood.models.architectures import architecture, build
from prood.models.wrapped.packages import build_network
from prood.models.wrapped.preprocessing import Preprocessing
from prood.models.wrapped.programs import ENDINGS, Program, open_program, sha256
from prood.reading import content as read


@dataclass(frozen=True)
class Facts:
    """All that is needed to build a wrapped classifier again; it is the architecture in the model's file.

    Either `file` and its `sha256` for a classifier that is a file beside the model's (kinds onnx, torchscript and
    export), or `model`, what a package (torchvision, timm, hf) or Prood builds its network from. A program that takes
    only batches of one length says so in `batch`.
    """

    kind: str
    classes: int
    preprocessing: Preprocessing
    output: str | int | None = None
    probabilities: bool = False
    layout: str = "NCHW"
    batch: int | None = None
    file: str | None = None
    sha256: str | None = None
    model: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        known = self.kind in (*ENDINGS, "torchvision", "timm", "hf", "prood") and self.layout in ("NCHW", "NHWC")
        if not known or self.classes < 2 or (self.batch or 1) < 1:
            raise Damaged(f"the file describes an impossible classifier: kind {self.kind!r}, {self.classes} classes")
        stored = self.kind in ENDINGS
        if stored and (not self.file or not self.sha256 or Path(self.file).name != self.file):
            raise Damaged(f"a wrapped {self.kind} classifier has a file beside the model's, not {self.file!r}")
        if not stored and not isinstance(self.model, Mapping):
            raise Damaged(f"a wrapped {self.kind} classifier says what it is built from, not {self.model!r}")

    def spec(self) -> dict[str, Any]:
        facts = asdict(self) | {"preprocessing": self.preprocessing.spec()}
        return {"name": "wrapped"} | {key: value for key, value in facts.items() if value is not None}

    def digest(self) -> bytes:
        """Over everything, the hash of the file among it."""
        return hashlib.sha256(json.dumps(self.spec(), sort_keys=True).encode()).digest()


class Wrapped(nn.Module):
    """Somebody else's classifier with its own preprocessing: images in [0, 1] in, logits out.

    A network of a package, or of ours, is a part like any other, and its weights lie in Prood's file. A program stays
    a file of its own, and its weights are not parameters here. The buffer `digest` stands for both and for the
    preprocessing, so that the fingerprint of a model tells any two of them apart.
    """

    digest: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, facts: Facts, network: nn.Module | None = None) -> None:
        super().__init__()
        self.facts = facts
        self.network = network
        self.program: Program | None = None  # not a module, so that its weights are not saved twice
        self.path: Path | None = None
        self.content: bytes | None = None  # of a program that lies in no folder of ours yet
        self.opened_for: tuple[int, int, int] | None = None  # the joint model's images; of a saved one, g knows them
        self.register_buffer("digest", torch.tensor(list(facts.digest()), dtype=torch.uint8))
        self.register_buffer("mean", torch.tensor(facts.preprocessing.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(facts.preprocessing.std).view(-1, 1, 1), persistent=False)

    @property
    def architecture(self) -> dict[str, Any]:
        return self.facts.spec()

    def forward(self, images: Tensor) -> Tensor:
        logits = self.answer(images)
        if self.facts.probabilities:
            # The smallest normal number: what underflowed to zero has no finite logarithm, and no gradient.
            logits = logits.clamp_min(torch.finfo(logits.dtype).tiny).log()
        if logits.shape != (images.shape[0], self.facts.classes):
            expected = f"{self.facts.classes} classes when it was wrapped"
            raise Mismatch(f"the classifier returned {tuple(logits.shape)} for {len(images)} images, and {expected}")
        return logits

    def answer(self, images: Tensor) -> Tensor:
        """What the classifier itself returns, logits or probabilities, one row for each image."""
        prepared = (self.facts.preprocessing.fitted(images) - self.mean) / self.std
        if self.facts.layout == "NHWC":
            prepared = prepared.permute(0, 2, 3, 1)
        size = self.facts.batch
        if size is None or not len(prepared):
            return self._called(prepared)
        # In batches of the one length that a program takes, the last filled up with copies of its last image.
        missing = -len(prepared) % size
        full = torch.cat([prepared, prepared[-1:].expand(missing, -1, -1, -1)]) if missing else prepared
        return torch.cat([self._called(part) for part in torch.split(full, size)])[: len(prepared)]

    def _called(self, prepared: Tensor) -> Tensor:
        run = self.network if self.program is None else self.program.run
        if run is None:
            raise Unsupported("the classifier's file is not opened yet: load the model with prood.load")
        return logits_of(run(prepared), output=self.facts.output)

    def attach(self, folder: Path) -> None:
        """Open what lies in the folder of the model's file."""
        if bytes(self.digest.tolist()) != self.facts.digest():
            raise Mismatch(f"the model in {folder} has another wrapped classifier than it describes: wrap it again")
        if self.facts.file is not None:
            path = folder / self.facts.file
            try:
                content = read(path)
            except OSError as error:
                raise NoAccess(f"the wrapped classifier {path} cannot be read: {error.strerror or error}") from None
            if sha256(content) != self.facts.sha256:
                raise Mismatch(f"{path} is not the file that was wrapped: its hash differs; wrap it again")
            self.program, self.path = open_program(self.facts.kind, content), path

    def store(self, folder: Path) -> None:
        """Put the classifier's file into the folder of the model's, unless it is there."""
        if self.facts.file is None:
            return
        target = folder / self.facts.file
        if self.content is None and target == self.path:
            return
        try:
            content = read(self.path) if self.content is None and self.path else self.content or b""
        except OSError:
            raise NotFound(f"the file {self.path} of the classifier is gone: load the model from where it is") from None
        if sha256(content) != self.facts.sha256:
            raise Mismatch(f"{self.path} was changed since the model was loaded: load it again")
        write_bytes(target, content)
        self.path, self.content = target, None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Wrapped:
        """Move the program, too: `to`, `cuda` and `float` all call this."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.program is not None and self.program.network is not None:
            self.program.network._apply(fn)  # type: ignore[no-untyped-call]
        return self


@architecture("wrapped")
def _wrapped(**facts: Any) -> nn.Module:
    try:
        read = Facts(**(facts | {"preprocessing": Preprocessing.of(facts["preprocessing"])}))
    except (KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"the description of a wrapped classifier cannot be read: {first_line(error)}") from None
    if read.model is None:
        return Wrapped(read)
    return Wrapped(read, build(read.model) if read.kind == "prood" else build_network(read.kind, read.model))


def wrapped_parts(model: nn.Module) -> list[Wrapped]:
    return [part for part in model.modules() if isinstance(part, Wrapped)]


def logits_of(returned: Any, *, output: str | int | None = None) -> Tensor:
    """The logits, or probabilities, among what was returned: a tensor, or the entry `output` of a mapping or a tuple.

    Without `output` it is the tensor itself, the entry called logits, or the only one there is. Axes of length one
    behind the classes, as a fully convolutional network leaves them, are dropped.
    """
    values = _chosen(returned, output)
    while values.ndim > 2 and values.shape[-1] == 1:
        values = values.squeeze(-1)
    if values.ndim != 2 or not values.is_floating_point():
        found = f"{values.dtype} of shape {tuple(values.shape)}"
        raise Unsupported(f"the classifier returns {found}: it must return logits or probabilities, (images, classes)")
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _chosen(returned: Any, output: str | int | None) -> Tensor:
    if isinstance(returned, Tensor):
        if output is not None:
            raise UnknownName(f"the classifier returns one tensor, and none that is called {output!r}")
        return returned
    if isinstance(returned, Mapping):
        entries: Mapping[Any, Any] = returned
    else:
        entries = dict(enumerate(returned)) if isinstance(returned, tuple | list) else getattr(returned, "__dict__", {})
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    if output is not None:
        name = int(output) if str(output).isdigit() and output not in tensors else output
        if name not in tensors:
            raise UnknownName(f"the classifier returns nothing that is called {output!r}, but {_listed(tensors)}")
        return tensors[name]
    if "logits" in tensors:
        return tensors["logits"]
    if len(tensors) != 1:
        raise BadValue(f"the classifier returns {_listed(tensors)}: say which are the logits with --output")
    return next(iter(tensors.values()))


def _listed(tensors: Mapping[Any, Tensor]) -> str:
    return ", ".join(f"{name} of shape {tuple(value.shape)}" for name, value in tensors.items()) or "no tensor"
