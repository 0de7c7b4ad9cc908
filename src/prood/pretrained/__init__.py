"""Models that come with Prood: NAME.safetensors beside this file, and NAME.md, its model card.

Only what is really there has a name. The weights are in half precision; `prood.load(NAME)` reads them.
"""

from pathlib import Path

from prood.errors import NoAccess, UnknownName

FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The shipped models, sorted."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.safetensors")))


def listed() -> str:
    """The same for a sentence."""
    return ", ".join(names()) or "none here"


def path(name: str) -> Path:
    """The file of a shipped model."""
    if name not in names():
        raise UnknownName(f"no model {name!r} comes with Prood: choose a shipped one ({listed()})")
    return FOLDER / f"{name}.safetensors"


def card(name: str) -> str:
    """The model card in Markdown: what it was trained on, what it reaches and what it is not for."""
    file = path(name).with_suffix(".md")
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise NoAccess(f"cannot read the model card {file} ({error.strerror}): install Prood again") from None
