"""Recipes that come with Prood: NAME.toml beside this file."""

from os.path import isfile
from pathlib import Path

from prood.errors import NotFound

FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def find(name: str) -> Path:
    """The file of a recipe of this name, or of your own. It needs no torch, so that a wrong name is refused at once."""
    file = FOLDER / f"{name}.toml" if name in names() else Path(name)
    if not isfile(file):
        raise NotFound(f"no recipe {name!r}: choose one of {', '.join(names())}, or give a .toml file")
    return file
