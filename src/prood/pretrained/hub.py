"""Models on the Hugging Face Hub: `hf:USER/NAME` or `hf:USER/NAME@REVISION`, and the files that a repository holds.

Only the files of `PATTERNS` are downloaded, into the cache of `huggingface_hub` and with its token. `config.json` has
the sha256 of each of them, and none is opened before it was compared. No pickle is among them that is ever loaded: a
TorchScript classifier (`classifier-*.pt`) is downloaded and refused without `trust_code`.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from prood.atomic import write_text
from prood.errors import BadValue, Damaged, NoAccess, NotFound, ProodError, Unreachable, Unsupported, first_line
from prood.extras import UPDATE, require_packages
from prood.reading import content, json_of, text

PREFIX, LIBRARY, FORMAT = "hf:", "prood", 1
CONFIG_FILE, CARD_FILE = "config.json", "README.md"
PATTERNS = ("model.safetensors", "calibration.json", "classifier-*.onnx", "classifier-*.pt2", "classifier-*.pt")
_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?", re.ASCII)
_LARGEST = 2**24
"""Bytes of a config.json."""


def is_on_hub(given: Path | str) -> bool:
    """Whether this names a repository; a file or folder of that name on disk wins."""
    return _name(given).startswith(PREFIX) and not Path(given).exists()


def repository(given: Path | str) -> tuple[str, str | None]:
    """USER/NAME and the revision: a branch, a tag or a commit."""
    found = _NAME.fullmatch(_name(given).removeprefix(PREFIX))
    if found is None:
        raise BadValue(f"{given!r} names no repository: write hf:USER/NAME or hf:USER/NAME@REVISION")
    return found["repository"], found["revision"]


def fetched(given: Path | str) -> Path:
    """The folder with the files of a repository: downloaded if they are not cached yet, and compared with its config.

    Within a process a name leads to the same commit, whatever happens on the Hub meanwhile.
    """
    return _fetched(*repository(given))


@cache
def _fetched(name: str, revision: str | None) -> Path:
    require_packages("hub", "huggingface_hub", what=f"{PREFIX}{name}")
    from huggingface_hub import snapshot_download

    with in_one_line(f"{PREFIX}{name}" + (f"@{revision}" if revision else "")):
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=[CONFIG_FILE, *PATTERNS]))
    check(folder, f"{PREFIX}{name}")
    return folder


def write_config(folder: Path, facts: Mapping[str, Any]) -> None:
    """config.json: facts for people and for the Hub, and the checksums of the files beside it."""
    files = {name: hashlib.sha256(content(folder / name)).hexdigest() for name in _files(folder)}
    about = {"library_name": LIBRARY, "format": FORMAT, **facts, "files": files}
    write_text(folder / CONFIG_FILE, json.dumps(about, indent=2, ensure_ascii=False) + "\n")


def check(folder: Path, name: str) -> None:
    """Compare each file that config.json lists with its checksum; a folder that Prood did not write is refused."""
    file = folder / CONFIG_FILE
    advice = "push it with Detector.push_to_hub, or write it with Detector.save_pretrained"
    if not file.is_file():
        raise NotFound(f"{name} does not hold a Prood model, as it lacks {CONFIG_FILE}: {advice}")
    try:
        about = json_of(text(file, _LARGEST))
    except ValueError as error:
        raise Damaged(f"the {CONFIG_FILE} of {name} cannot be read ({error}): download it again") from None
    if not isinstance(about, dict) or about.get("library_name") != LIBRARY:
        raise NotFound(f"{name} does not hold a Prood model, as another library wrote its {CONFIG_FILE}: {advice}")
    listed, form = about.get("files"), about.get("format")
    if not isinstance(form, int) or not isinstance(listed, dict) or "model.safetensors" not in listed:
        raise Damaged(f"the {CONFIG_FILE} of {name} does not list its files: write it again")
    if form > FORMAT:
        raise Unsupported(f"{name} was written by a newer Prood: {UPDATE}")
    if extra := [one for one in _files(folder) if one not in listed]:
        raise Damaged(f"{name} has the file {extra[0]}, which its {CONFIG_FILE} does not list: write it again")
    for one, expected in listed.items():
        if not any(PurePath(one).match(pattern) for pattern in PATTERNS) or PurePath(one).name != one:
            raise Damaged(f"the {CONFIG_FILE} of {name} lists {one!r}, which does not belong to a model: do not use it")
        try:
            found = hashlib.sha256(content(folder / one)).hexdigest()
        except OSError as error:
            raise Damaged(f"{name} lacks its file {one} ({error.strerror}): download or write it again") from None
        if found != expected:
            raise Damaged(f"{one} of {name} is not the file that was written, its checksum differs: write it again")


@contextmanager
def in_one_line(name: str) -> Iterator[None]:
    """What the Hub's client raises, as one line that says what to do."""
    from huggingface_hub import errors

    try:
        yield
    except ProodError:
        raise
    except errors.GatedRepoError:
        raise NoAccess(f"{name} needs its authors' consent: ask for it on the Hub, then run 'hf auth login'") from None
    except errors.RevisionNotFoundError:
        raise NotFound(f"{name} has no such revision: give a branch, a tag or a commit of the repository") from None
    except errors.RepositoryNotFoundError:
        advice = "check the name, and run 'hf auth login' if the repository is private"
        raise NotFound(f"there is no repository {name} on the Hub: {advice}") from None
    except errors.LocalEntryNotFoundError:
        advice = "check the network, or load it once where there is one"
        raise Unreachable(f"the Hub does not answer, and {name} is not cached: {advice}") from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        kind = NoAccess if status in (401, 403) else Unreachable
        raise kind(f"the Hub refuses {name} ({first_line(error)}): run 'hf auth login', or try again later") from None
    except errors.HFValidationError as error:
        raise BadValue(f"{name} is not a valid name on the Hub ({first_line(error)}): write USER/NAME") from None
    except Exception as error:  # of the HTTP library below the client, which is another one in each version
        raise Unreachable(f"the Hub cannot be reached for {name} ({first_line(error)}): check the network") from None


def _files(folder: Path) -> list[str]:
    return sorted({file.name for pattern in PATTERNS for file in folder.glob(pattern)})


def _name(given: Path | str) -> str:
    return given.as_posix() if isinstance(given, PurePath) else given
