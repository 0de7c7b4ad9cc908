"""What is known about each public set, from the table `sets.toml`; and the sets that are a tree of pictures."""

import tomllib
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from prood.data.catalog import Download, Facts, Package, Public
from prood.data.formats.folder import Tree, find_pictures
from prood.data.sources import ReadPublic, Shape, public_source
from prood.data.stored import StoredSet

AGAIN = "fetch the set again with 'prood data fetch NAME --again'"
_SETS: dict[str, Any] = tomllib.loads(files(__package__).joinpath("sets.toml").read_text(encoding="utf-8"))


def known(name: str) -> Callable[[ReadPublic], ReadPublic]:
    """Register a reader of the public set of this name: a function of (folder, split, shape)."""
    entry = _SETS[name]
    about = Public(
        **{key: entry[key] for key in ("title", "licence", "page", "bytes")},
        folder=entry.get("folder", name),
        downloads=tuple(Download(**download) for download in entry.get("downloads", ())),
        package=Package(**entry["package"]) if "package" in entry else None,
        by_hand=entry.get("by_hand", ""),
        facts={split: _facts(**facts) for split, facts in entry.get("facts", {}).items()},
    )
    return public_source(name, description=entry["description"], splits=tuple(entry["splits"]), about=about)


def _facts(count: int, classes: int | None = None, **lists: list[Any]) -> Facts:
    if classes is not None:
        lists["per_class"] = [count // classes] * classes
    return Facts(count, **{name: tuple(values) for name, values in lists.items()})


def read_pictures(name: str, folder: Path, split: str, shape: Shape | None = None) -> StoredSet:
    """A set that is a tree of pictures."""
    entry = _SETS[name]
    root = folder / entry["pictures"].format(split=split)
    tree = Tree(root, find_pictures(root), shape or (3, entry["side"], entry["side"]), entry.get("size", "fit"))
    return StoredSet(f"{name}:{split}", tree, tree.shape)


for _name, _entry in _SETS.items():
    if "pictures" in _entry:
        known(_name)(partial(read_pictures, _name))
