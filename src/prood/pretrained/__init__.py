"""Models that come with Prood: NAME.safetensors beside this file, and NAME.md, its model card.

Only what is really there has a name. The weights are in half precision; `prood.load(NAME)` reads them.
"""

from os.path import exists, isdir, isfile
from pathlib import Path

from prood.errors import NoAccess, NotFound, UnknownName, Unsupported

FOLDER = Path(__file__).parent
MODEL_FILE = "model.safetensors"
RUN_FILE = "recipe.json"  # in the folder of a run from its first moment on


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


def model_path(given: Path | str) -> Path:
    """The model file itself: `given`, the one inside it if that is a run's folder, or the shipped one so named.

    A file or folder of that name on disk wins over the model that comes with Prood.
    """
    place = Path(given)
    if isdir(place):  # Path.is_dir has errors of its own, for a name that is too long say
        return place / MODEL_FILE
    return path(str(given)) if str(given) in names() and not exists(place) else place


def find(given: Path | str) -> Path:
    """The same, where it must be there. It needs no torch, so that a wrong name is refused at once."""
    file = model_path(given)
    if not isfile(file):
        if isdir(given) and (Path(given) / RUN_FILE).is_file():
            raise NotFound(f"{given} is a run that is not finished: run the command that began it with --resume")
        advice = f"give a run's folder, a .safetensors file or a shipped model ({listed()})"
        if str(given) in names():
            advice = f"the folder hides the shipped model {given}; rename it, or work in another folder"
        raise NotFound(f"there is no model at {file}: {advice}")
    try:
        str(file).encode()
    except UnicodeEncodeError:  # safetensors takes no other names
        raise Unsupported(f"the name {file} is no text in UTF-8: rename the file, or its folder") from None
    try:
        file.open("rb").close()  # what may not be read looks missing to safetensors
    except OSError as error:
        raise NoAccess(f"cannot read {file}: {error.strerror}") from None
    return file
