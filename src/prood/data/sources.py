"""Image sets by name: `load("digits:train")`.

A source is a function that is registered under a name. There are four kinds, one decorator each:

- `@source`: a fixed set with splits, such as `digits:train`; a function of the split.
- `@public_source`: a public set on disk, such as `svhn:test`; a function of (folder, split, shape).
- `@file_source`: files of the user's own, such as `npz:my/images.npz`; a function of (path, shape).
- `@noise_source`: images made to measure, such as `smooth`; a function of (count, shape, seed).

`shape` is that of the images the set has to match, or None for the set's own.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from prood.data.catalog import Public
from prood.data.images import ImageSet
from prood.data.stored import StoredSet
from prood.errors import ProodError

Shape = tuple[int, int, int]
Images = ImageSet | StoredSet
ReadSplit = Callable[[str], ImageSet]
ReadPublic = Callable[[Path, str, Shape | None], Images]
ReadFile = Callable[[Path, Shape | None], Images]
MakeNoise = Callable[[int, Shape, int], ImageSet]


class Source(NamedTuple):
    """What `names` tells about a source."""

    name: str
    splits: tuple[str, ...]
    description: str
    public: Public | None = None


@dataclass(frozen=True)
class _Entry:
    source: Source
    read_split: ReadSplit | None = None
    read_public: ReadPublic | None = None
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


def public_source(
    name: str, *, description: str, splits: tuple[str, ...], about: Public
) -> Callable[[ReadPublic], ReadPublic]:
    """Register a reader of a public set in its folder; the last two splits that were read are kept."""

    def decorate(function: ReadPublic) -> ReadPublic:
        kept = functools.lru_cache(maxsize=2)(function)
        _register(_Entry(Source(name, splits, description, about), read_public=kept))
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
    """All sources, by name."""
    return tuple(_REGISTRY[name].source for name in sorted(_REGISTRY))


def find(name: str) -> Source:
    """The source of this name, which may carry a split or a path."""
    return _entry(name).source


def load(
    name: str, *, like: Images | None = None, count: int = 1000, seed: int = 0, split: str | None = None
) -> ImageSet:
    """The image set of this name, in memory: `digits:train`, `npz:PATH`, `smooth` …; see `open_set`."""
    return open_set(name, like=like, count=count, seed=seed, split=split).load()


def open_set(
    name: str, *, like: Images | None = None, count: int = 1000, seed: int = 0, split: str | None = None
) -> Images:
    """The image set of this name, in memory or, if it is a `StoredSet`, on disk; `names()` lists what there is.

    `split` is meant where the name has none. A source with a single split may be named without it. Noise takes its
    image shape from `like` and makes `count` images from `seed`. Sets that come as photographs of all sizes are
    fitted to the shape of `like`; all others are what they are.
    """
    key, colon, rest = name.partition(":")
    entry = _entry(name)
    shape = None if like is None else like.shape
    if entry.make_noise is not None:
        if colon:
            raise ProodError(f"'{key}' has no splits: write '{key}' instead of '{name}'")
        if shape is None:
            raise ProodError(f"'{name}' has no image size of its own: give load(..., like=) a set to match")
        return entry.make_noise(count, shape, seed)
    if entry.read_file is not None:
        if not rest:
            raise ProodError(f"'{name}' names no file: write '{key}:PATH'")
        # Not Path.expanduser, which raises an error of its own for a user that does not exist.
        return entry.read_file(Path(os.path.expanduser(rest)), shape)
    wanted = _split(entry.source, rest if colon else None, split)
    if entry.read_split is not None:
        return entry.read_split(wanted)
    assert entry.read_public is not None
    assert entry.source.public is not None
    public = entry.source.public
    if not public.present:
        raise ProodError(f"the image set '{key}' is not here: {public.how_to_get(key)}")
    return entry.read_public(public.path, wanted, shape)


def _entry(name: str) -> _Entry:
    key = name.partition(":")[0]
    if key not in _REGISTRY:
        near = get_close_matches(key, _REGISTRY, 1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ProodError(f"there is no image set '{name}': {hint}'prood data list' shows what there is")
    return _REGISTRY[key]


def _split(source: Source, asked: str | None, default: str | None) -> str:
    splits = source.splits
    if asked is None and len(splits) == 1:
        return splits[0]
    split = default if asked is None else asked
    if split not in splits:
        fault = "needs a split" if split is None else f"has no split '{split}'"
        raise ProodError(f"'{source.name}' {fault}: choose one of {', '.join(f'{source.name}:{s}' for s in splits)}")
    return split
