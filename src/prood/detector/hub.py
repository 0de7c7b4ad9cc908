"""A detector as a repository of the Hugging Face Hub: config.json, model.safetensors, README.md, calibration.json.

`hf:USER/NAME@REVISION` is then its name wherever a model is named. What travels: weights, classes, threshold and
calibration, a wrapped classifier's file, and which sets the model was trained on. Its recipe stays, and of names with a
path only the last part goes along: folders of the author's machine are nobody's business.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from prood.atomic import write_text
from prood.detector import files
from prood.errors import BadValue
from prood.extras import require_packages
from prood.models import Metadata, ProoD, fingerprint, read_metadata, spec_of
from prood.models.cards import facts_of, hub_card
from prood.pretrained import hub

if TYPE_CHECKING:
    from prood.detector.detector import Detector


def save(
    detector: Detector, folder: Path, *, licence: str | None = None, card: str | None = None, title: str | None = None
) -> None:
    """Write the repository's files into a new folder."""
    files.check_free(folder)
    about = getattr(detector.model, "about", None) or Metadata(architecture=spec_of(detector.model))
    data = {_public(name): value for name, value in about.data.items()}
    about = replace(about, recipe=None, data=data, inside=None if about.inside is None else _public(about.inside))
    shift = detector.shift if isinstance(detector.model, ProoD) else None
    files.keep(detector, folder, replace(about, classes=list(detector.classes) or None, shift=shift))
    about = read_metadata(folder)
    facts = facts_of(about, fingerprint(detector.model), detector.shape)
    named = {name: getattr(about, name) for name in ("architecture", "classes", "threshold", "accept", "eps", "inside")}
    write_text(folder / hub.CARD_FILE, hub_card(title or folder.name, facts, licence=licence, text=card))
    image = {"image": list(detector.shape), "prood_version": about.version, "weights": fingerprint(detector.model)}
    hub.write_config(folder, named | image)


def found(name: str, revision: str | None) -> Path | str:
    """A folder that `save` wrote, compared with its config.json, or the name of a repository."""
    place = Path(name)
    if place.is_dir():
        if revision is not None:
            raise BadValue(f"{name} is a folder, which has no revision {revision!r}: leave it out")
        hub.check(place, name)
        return place
    full = name if name.startswith(hub.PREFIX) else hub.PREFIX + name
    if revision is not None and "@" in full:
        raise BadValue(f"{name} states a revision already: leave out revision={revision!r}")
    return full if revision is None else f"{full}@{revision}"


def push(
    detector: Detector,
    name: str,
    *,
    revision: str | None = None,
    private: bool | None = None,
    licence: str | None = None,
    card: str | None = None,
) -> str:
    """Upload the files in one commit, and return the name by which exactly these are loaded: hf:USER/NAME@COMMIT."""
    require_packages("hub", "huggingface_hub", what="pushing a model")
    from huggingface_hub import HfApi

    repository, stated = hub.repository(name)
    if stated is not None:
        raise BadValue(f"{name} states a revision: name the branch with revision={stated!r}")
    with tempfile.TemporaryDirectory(prefix="prood-") as folder:
        save(detector, Path(folder, "model"), licence=licence, card=card, title=repository)
        with hub.in_one_line(f"{hub.PREFIX}{repository}"):
            api = HfApi()
            api.create_repo(repository, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(repository, branch=revision, exist_ok=True)
            commit = api.upload_folder(
                repo_id=repository,
                folder_path=str(Path(folder, "model")),
                revision=revision,
                delete_patterns=list(hub.PATTERNS),  # those of the model before
                commit_message=f"Prood model {fingerprint(detector.model)}",
            )
    return f"{hub.PREFIX}{repository}@{commit.oid}"


def _public(name: str) -> str:
    """The name of an image set without the folders of this machine."""
    kind, colon, rest = name.partition(":")
    return kind + colon + Path(rest).name if "/" in rest or "\\" in rest else name
