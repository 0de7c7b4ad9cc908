"""Where a model's file is: of a run, of a model that comes with Prood, or of one on the Hugging Face Hub (`hub`).

Models that come with Prood are NAME.safetensors beside this file, and NAME.md is the model card. Only what is really
there has a name. The weights are in half precision; `prood.load(NAME)` reads them.
"""

from os.path import exists, isdir, isfile
from pathlib import Path

from prood.errors import NoAccess, NotFound, UnknownName, Unsupported
from prood.pretrained import hub

FOLDER = Path(__file__).parent
MODEL_FILE = "model.safetensors"
RUN_FILE = "recipe.json"  # in the folder of a run from its first moment on
GUARD_FILE = "guard.toml"  # in the folder of a guard from its first moment on


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


def place_of(given: Path | str) -> Path:
    """`given` as a path; of a repository on the Hub (hf:USER/NAME), the folder that its files were downloaded into."""
    return hub.fetched(given) if hub.is_on_hub(given) else Path(given)


def title(given: Path | str) -> str:
    """What to call a model: the name of its folder, its file or its repository."""
    if hub.is_on_hub(given):
        return hub.repository(given)[0].partition("/")[2]
    place = Path(given)
    return place.resolve().name if place.is_dir() else place.stem


def model_path(given: Path | str) -> Path:
    """The model file itself: `given`, the one inside it if that is a run's folder, or the shipped one so named.

    A file or folder of that name on disk wins over the model that comes with Prood. The files of a repository on the
    Hub are downloaded, and checked.
    """
    place = place_of(given)
    if isdir(place):  # Path.is_dir has errors of its own, for a name that is too long say
        return place / MODEL_FILE
    return path(str(given)) if not exists(place) and str(given) in names() else place


def find(given: Path | str) -> Path:
    """The same, where it must be there. It needs no torch, so that a wrong name is refused at once."""
    file = model_path(given)
    if not isfile(file):
        if isdir(given) and (Path(given) / RUN_FILE).is_file():
            raise NotFound(f"{given} is a run that is not finished: run the command that began it with --resume")
        if isdir(given) and (Path(given) / GUARD_FILE).is_file():
            raise NotFound(f"{given} is a guard that is not finished: continue it with 'prood guard --run {given}'")
        advice = f"give a run's folder, a .safetensors file, hf:USER/NAME or a shipped model ({listed()})"
        if str(given) in names():
            advice = f"the folder hides the shipped model {given}; rename it, or work in another folder"
        raise NotFound(f"there is no model at {file}: {advice}")
    try:
        str(file).encode()
    except UnicodeEncodeError:  # safetensors takes no other names
        raise Unsupported(f"the name {file} is not valid UTF-8: rename the file, or its folder") from None
    try:
        file.open("rb").close()  # what may not be read looks missing to safetensors
    except OSError as error:
        raise NoAccess(f"cannot read {file} ({error.strerror}): check its permissions") from None
    return file
