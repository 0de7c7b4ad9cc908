"""What was found under the name of a classifier, before it is wrapped."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from prood.models.wrapped.preprocessing import Preprocessing
from prood.models.wrapped.programs import Program


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
    channels: int | None = None  # guessed from the weights, where nothing else is known
    preprocessing: Preprocessing | None = None
    names: tuple[str, ...] | None = None
    output: str | int | None = None
