"""Image sets by name: `load("digits:train")`.

A source is a function that is registered under a name by one of four decorators: `@source` for a fixed set with splits
(`digits:train`), `@public_source` for a public set on disk (`svhn:test`), `@file_source` for files of the user's own
(`npz:my/images.npz`), and `@noise_source` for images made to measure (`smooth`). A `shape` is the shape of the images
that the set has to match, or None for the set's own.

Besides, a folder NAME of sheets (see `formats.mosaic`) in the data folder is the set NAME: in place of the files of the
public set of that name, or, where no source has the name, as a set of the user's own.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import NamedTuple, TypeVar, get_args

from prood.data.catalog import Public, data_folder
from prood.data.formats import mosaic
from prood.data.images import ImageSet, Shape
from prood.data.stored import Damage, Images
from prood.errors import BadValue, NoAccess, NotFound, ProodError, UnknownName

ReadSplit = Callable[[str], ImageSet]
ReadPublic = Callable[[Path, str, Shape | None], Images]
ReadFile = Callable[[Path, Shape | None], Images]
ReadPictures = Callable[[Path, Shape | None, Damage], Images]
MakeNoise = Callable[[int, Shape, int], ImageSet]
MakeLike = Callable[[int, Images | Shape, int], Images]
F = TypeVar("F", ReadSplit, ReadPublic, ReadFile, ReadPictures, MakeNoise, MakeLike)


class Source(NamedTuple):
    """What `names` tells about a source."""

    name: str
    splits: tuple[str, ...]
    description: str
    public: Public | None = None
    folder: Path | None = None  # of a set of the user's own in the data folder


@dataclass(frozen=True)
class _Entry:
    source: Source
    read_split: ReadSplit | None = None
    read_public: ReadPublic | None = None
    read_file: ReadFile | None = None
    read_pictures: ReadPictures | None = None
    make_noise: MakeNoise | None = None
    make_like: MakeLike | None = None


_TRAINED_ON = 2**32
_REGISTRY: dict[str, _Entry] = {}


def _registering(entry_of: Callable[[F], _Entry]) -> Callable[[F], F]:
    """A decorator that registers what `entry_of` makes of a function."""

    def decorate(function: F) -> F:
        entry = entry_of(function)
        name = entry.source.name
        if name in _REGISTRY or not name or ":" in name:
            raise BadValue(f"cannot register the image source '{name}': choose a new name without a colon")
        _REGISTRY[name] = entry
        return function

    return decorate


def source(name: str, *, description: str, splits: tuple[str, ...]) -> Callable[[ReadSplit], ReadSplit]:
    """Register a function of the split; each split is read once a process and then kept in memory."""
    return _registering(lambda function: _Entry(Source(name, splits, description), read_split=cache(function)))


def public_source(
    name: str, *, description: str, splits: tuple[str, ...], about: Public
) -> Callable[[ReadPublic], ReadPublic]:
    """Register a function of (folder, split, shape); the last two splits that were read are kept."""

    def entry(function: ReadPublic) -> _Entry:
        @lru_cache(maxsize=2)
        def kept(folder: Path, split: str, shape: Shape | None, stamp: tuple[int, int]) -> Images:
            return function(folder, split, shape)

        def read(folder: Path, split: str, shape: Shape | None) -> Images:
            about_folder = folder.stat()
            return kept(folder, split, shape, (about_folder.st_ino, about_folder.st_mtime_ns))

        return _Entry(Source(name, splits, description, about), read_public=read)

    return _registering(entry)


def file_source(name: str, *, description: str) -> Callable[[ReadFile], ReadFile]:
    """Register a function of (path, shape); nothing is kept, for the file may change."""
    return _registering(lambda function: _Entry(Source(name, ("PATH",), description), read_file=function))


def picture_source(name: str, *, description: str) -> Callable[[ReadPictures], ReadPictures]:
    """Register a function of (path, shape, what becomes of damaged pictures), for files of the user's own."""
    return _registering(lambda function: _Entry(Source(name, ("PATH",), description), read_pictures=function))


def noise_source(name: str, *, description: str) -> Callable[[MakeNoise], MakeNoise]:
    """Register a function of (count, shape, seed)."""
    return _registering(lambda function: _Entry(Source(name, (), description), make_noise=function))


def like_source(name: str, *, description: str) -> Callable[[MakeLike], MakeLike]:
    """Register a function of (count, the images to match or their shape, seed)."""
    return _registering(lambda function: _Entry(Source(name, (), description), make_like=function))


# Here and not beside the reader, as sets in the data folder are read with it, too.
file_source("mosaic", description="your own: FOLDER/SPLIT for 32×32 tiles in FOLDER/SPLIT-00.webp, SPLIT-01.webp …")(
    mosaic.read_mosaic
)


def names() -> tuple[Source, ...]:
    """All sources, and the user's own sets in the data folder, by name."""
    try:
        folders = os.listdir(data_folder())
    except OSError:
        folders = []
    own = [_own(name) for name in folders]
    sources = [entry.source for entry in (*_REGISTRY.values(), *own) if entry is not None]
    return tuple(sorted(sources, key=lambda source: source.name))


def find(name: str) -> Source:
    """The source of this name, which may carry a split or a path."""
    return _entry(name).source


def load(
    name: str,
    *,
    like: Images | None = None,
    shape: Shape | None = None,
    count: int = 1000,
    seed: int = 0,
    split: str | None = None,
    damaged: Damage = "refuse",
) -> ImageSet:
    """The image set of this name, in memory: `digits:train`, `npz:PATH`, `smooth` …; see `open_set`."""
    return open_set(name, like=like, shape=shape, count=count, seed=seed, split=split, damaged=damaged).load()


def open_set(
    name: str,
    *,
    like: Images | None = None,
    shape: Shape | None = None,
    count: int = 1000,
    seed: int = 0,
    split: str | None = None,
    damaged: Damage = "refuse",
) -> Images:
    """The image set of this name, in memory or, if it is a `StoredSet`, on disk; `names()` lists what there is.

    `split` is meant where the name has none. A source with a single split may be named without it. Noise takes its
    image shape from `shape`, or the shape of `like`, and makes `count` images from `seed`, or as many as the name says:
    `smooth:5000`. Sets that come as photographs of
    all sizes are fitted to this shape; all others are what they are, and so is a set that lies in the data folder as
    sheets. `damaged="skip"` leaves out pictures of the user's own that cannot be read, which are otherwise refused.
    """
    if damaged not in get_args(Damage):
        raise BadValue(f"damaged must be 'refuse' or 'skip', not {damaged!r}")
    key, colon, rest = name.partition(":")
    entry = _entry(name)
    shape = like.shape if shape is None and like is not None else shape
    if entry.make_noise is not None or entry.make_like is not None:
        if colon and not re.fullmatch("[0-9]{1,9}", rest):
            raise UnknownName(f"'{key}' has no splits: write '{key}' or '{key}:COUNT' instead of '{name}'")
        if shape is None:
            raise BadValue(f"'{name}' is made to any size: name images, or give load(..., like=) a set to match")
        count = int(rest) if colon else count
        if entry.make_noise is not None:
            return entry.make_noise(count, shape, seed)
        assert entry.make_like is not None
        # What is trained on and what is tested on are not the same images, though both are asked for with seed 0.
        return entry.make_like(count, shape if like is None else like, seed + (_TRAINED_ON if split == "train" else 0))
    if entry.read_file is not None or entry.read_pictures is not None:
        if not rest:
            raise BadValue(f"'{name}' names no file: write '{key}:PATH'")
        path = Path(os.path.expanduser(rest))  # Path.expanduser has an error of its own for an unknown user
        if entry.read_pictures is not None:
            return entry.read_pictures(path, shape, damaged)
        assert entry.read_file is not None
        return entry.read_file(path, shape)
    wanted = split_of(entry.source, rest if colon else None, split)
    if entry.read_split is not None:
        return entry.read_split(wanted)
    public = entry.source.public
    assert entry.read_public is not None
    assert public is not None
    sheets = _sheet_splits(key)
    if wanted in sheets:
        return _read_sheets(key, wanted)
    if not public.present:
        raise NotFound(f"the image set '{key}' is not here: {public.how_to_get(key)}")
    try:
        return entry.read_public(public.path, wanted, shape)
    except ProodError as error:
        if not sheets:
            raise
        sheet_names = ", ".join(f"{key}:{split}" for split in sheets)
        raise UnknownName(f"{error} (of {sheet_names} there are sheets, of {key}:{wanted} there are none)") from error


def _sheet_splits(name: str) -> tuple[str, ...]:
    """The splits of this set, public or the user's own, that lie in the data folder as sheets."""
    # A name that is looked up in the data folder is one step, never out of it.
    return mosaic.splits(data_folder() / name) if re.fullmatch(r"[A-Za-z0-9_-]+", name) else ()


def _read_sheets(name: str, split: str) -> ImageSet:
    """A split from its sheets, read anew only if one of its files has changed."""
    path = data_folder() / name / split
    try:
        stats = [(file.name, file.stat()) for file in mosaic.files(path)]
    except OSError as error:
        raise NoAccess(f"cannot read the sheets in {path} ({error.strerror or error}): check permissions") from error
    return _kept_sheets(name, path, tuple((file, stat.st_mtime_ns, stat.st_size) for file, stat in stats))


@lru_cache(maxsize=4)  # 150 MB each, for 50,000 images
def _kept_sheets(name: str, path: Path, stamps: tuple[tuple[str, int, int], ...]) -> ImageSet:
    return mosaic.read_mosaic(path, name=f"{name}:{path.name}")


def _own(name: str) -> _Entry | None:
    """The user's own set of this name in the data folder, unless a source has the name."""
    if name in _REGISTRY or not (splits := _sheet_splits(name)):
        return None
    source = Source(name, splits, "your own, in the data folder", folder=data_folder() / name)
    return _Entry(source, read_split=partial(_read_sheets, name))


def _entry(name: str) -> _Entry:
    key = name.partition(":")[0]
    if entry := _REGISTRY.get(key) or _own(key):
        return entry
    if not name:
        raise UnknownName("there is no image set without a name: 'prood data list' shows all")
    if Path(name).is_dir():
        raise UnknownName(f"there is no image set '{name}', only a folder: write 'folder:{name}' for its pictures")
    if os.sep in key or Path(key).suffix:
        raise UnknownName(f"there is no image set or file '{name}': check its path")
    near = get_close_matches(key, [source.name for source in names()], 1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise UnknownName(f"there is no image set '{name}': {hint}'prood data list' shows all")


def split_of(source: Source, asked: str | None, default: str | None = None) -> str:
    """The split that was asked for, else the only one there is, else `default`; any other is refused."""
    splits = source.splits
    if asked is None and len(splits) == 1:
        return splits[0]
    split = default if asked is None else asked
    if split not in splits:
        fault = "needs a split" if split is None else f"has no split '{split}'"
        raise UnknownName(f"'{source.name}' {fault}: choose one of {', '.join(f'{source.name}:{s}' for s in splits)}")
    return split
