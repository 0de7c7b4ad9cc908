"""calibration.json: what a detector's threshold comes from, beside the model's file, which holds the threshold."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from prood.atomic import write_text
from prood.detector.calibration import Calibration
from prood.errors import Damaged, Mismatch, NoAccess
from prood.models import MODEL_FILE, Metadata, fingerprint, save
from prood.models.confidence import renamed
from prood.reading import content, json_of

if TYPE_CHECKING:
    from prood.detector.detector import Detector

CALIBRATION_FILE = "calibration.json"
_NUMBERS = ("threshold", "score", "index", "accept", "level")


def save_calibration(detector: Detector, folder: Path) -> None:
    """Write the detector's calibration, if it has one."""
    found = detector.calibration
    if found is not None:
        facts = {name: getattr(found, name) for name in _NUMBERS}
        facts |= {"weights": fingerprint(detector.model), "scores": found.scores.tolist()}
        write_text(folder / CALIBRATION_FILE, json.dumps(facts))


def keep(detector: Detector, folder: Path, about: Metadata) -> None:
    """Write the detector into the folder of a model, with all else that its file said (`about`)."""
    named = {one.name for one in fields(about)} - {"architecture", "version", "format"}
    facts = {name: getattr(about, name) for name in named}
    facts |= {"threshold": detector.threshold, "accept": detector.accept, "provable": detector.provable}
    save_calibration(detector, folder)
    save(detector.model, folder / MODEL_FILE, **facts)


def calibration(path: Path, model: nn.Module) -> Calibration | None:
    """The one beside the file of this model, where `path` is a folder that has one."""
    file = path / CALIBRATION_FILE
    if not file.is_file():
        return None
    try:
        facts = renamed(json_of(content(file)))
        scores = np.asarray(facts["scores"], dtype=np.float64)
        found = Calibration(**{name: facts[name] for name in _NUMBERS}, scores=scores)
        sound = scores.ndim == 1 and 1 <= found.index <= len(scores) and bool((np.diff(scores) >= 0).all())
        sound = sound and scores[found.index - 1] == found.score and isinstance(found.threshold, float)
    except OSError as error:
        raise NoAccess(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"cannot read {file} ({error!r}): calibrate the detector again") from None
    if not sound:
        raise Damaged(f"{file} is not a calibration as Prood writes it: calibrate the detector again")
    if facts.get("weights") != fingerprint(model):
        raise Mismatch(f"{file} was made with other weights than the model beside it: calibrate the detector again")
    return found
