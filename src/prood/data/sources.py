"""Image sets by name: `load("digits:train")`.

A source is a function that is registered under a name. There are three kinds, one decorator each:

- `@source`: a fixed set with splits, such as `digits:train`; a function of the split.
- `@file_source`: a file of the user's own, such as `npz:my/images.npz`; a function of the path.
- `@noise_source`: images made to measure, such as `smooth`; a function of (count, shape, seed).
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prood.data.images import ImageSet
from prood.errors import ProodError

Shape = tuple[int, int, int]
ReadSplit = Callable[[str], ImageSet]
ReadFile = Callable[[Path], ImageSet]
MakeNoise = Callable[[int, Shape, int], ImageSet]


class Source(NamedTuple):
    """What `names` tells about a source."""

    name: str
    splits: tuple[str, ...]
    description: str


@dataclass(frozen=True)
class _Entry:
    source: Source
    read_split: ReadSplit | None = None
    read_file: ReadFile | None = None
    make_noise: MakeNoise | None = None


_REGISTRY: dict[str, _Entry] = {}


def _register(entry: _Entry) -> None:
    name = entry.source.name
    if name in _REGISTRY or not name or ":" in name:
        raise ProodError(f"cannot register the image source '{name}': choose a new name without a colon")
    _REGISTRY[name] = entry


def source(name: str, *, description: str, splits: tuple[str, ...]) -> Callable[[ReadSplit], ReadSplit]:
    """Register a function of the split; each split is read once a process and then kept in memory."""

    def decorate(function: ReadSplit) -> ReadSplit:
        _register(_Entry(Source(name, splits, description), read_split=functools.cache(function)))
        return function

    return decorate


def file_source(name: str, *, description: str) -> Callable[[ReadFile], ReadFile]:
    """Register a reader of the user's files; nothing is kept, for the file may change."""

    def decorate(function: ReadFile) -> ReadFile:
        _register(_Entry(Source(name, ("PATH",), description), read_file=function))
        return function

    return decorate


def noise_source(name: str, *, description: str) -> Callable[[MakeNoise], MakeNoise]:
    """Register a function of (count, shape, seed)."""

    def decorate(function: MakeNoise) -> MakeNoise:
        _register(_Entry(Source(name, (), description), make_noise=function))
        return function

    return decorate


def names() -> tuple[Source, ...]:
    """All sources as (name, splits, description), by name."""
    return tuple(_REGISTRY[name].source for name in sorted(_REGISTRY))


def load(name: str, *, like: ImageSet | None = None, count: int = 1000, seed: int = 0) -> ImageSet:
    """The image set of this name: `digits:train`, `npz:PATH`, `smooth` …; `names()` lists what there is.

    A source with a single split may be named without it. Noise takes its image shape from `like` and makes `count`
    images from `seed`; sets of real images are what they are and ignore the three.
    """
    key, colon, rest = name.partition(":")
    if key not in _REGISTRY:
        raise ProodError(f"there is no image set '{name}': choose one of {', '.join(_spellings())}")
    entry = _REGISTRY[key]
    if entry.make_noise is not None:
        if colon:
            raise ProodError(f"'{key}' has no splits: write '{key}' instead of '{name}'")
        if like is None:
            raise ProodError(f"'{name}' has no image size of its own: give load(..., like=) a set to match")
        return entry.make_noise(count, like.shape, seed)
    if entry.read_file is not None:
        if not rest:
            raise ProodError(f"'{name}' names no file: write '{key}:PATH'")
        # Not Path.expanduser, which raises an error of its own for a user that does not exist.
        return entry.read_file(Path(os.path.expanduser(rest)))
    assert entry.read_split is not None
    splits = entry.source.splits
    split = splits[0] if not colon and len(splits) == 1 else rest
    if split not in splits:
        fault = f"has no split '{split}'" if colon else "needs a split"
        raise ProodError(f"'{key}' {fault}: choose one of {', '.join(f'{key}:{s}' for s in splits)}")
    return entry.read_split(split)


def _spellings() -> list[str]:
    return [f"{s.name}:{split}" if split else s.name for s in names() for split in s.splits or ("",)]
