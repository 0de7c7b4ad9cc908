"""calibration.json: what a detector's threshold comes from, beside the model's file, which holds the threshold."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from prood.atomic import write_text
from prood.detector.calibration import Calibration
from prood.errors import AlreadyThere, Damaged, Mismatch, NoAccess, Unsupported, warn
from prood.models import MODEL_FILE, Discriminator, Metadata, ProoD, fingerprint
from prood.models import load as load_model
from prood.models import save as save_model
from prood.models.confidence import renamed
from prood.models.constancy import constant
from prood.models.files import place_of
from prood.reading import content, json_of

if TYPE_CHECKING:
    from prood.detector.detector import Detector

CALIBRATION_FILE = "calibration.json"
_NUMBERS = ("threshold", "score", "index", "accept", "level")


def check_free(folder: Path) -> None:
    """Refuse a folder that has a model already."""
    if (folder / MODEL_FILE).exists() or (folder / CALIBRATION_FILE).exists() or folder.is_file():
        raise AlreadyThere(f"{folder} already holds a model, a run perhaps: save the detector elsewhere")


def save(detector: Detector, folder: Path) -> None:
    """Write the model with its names and threshold, and the calibration, into a new folder."""
    check_free(folder)
    stated: dict[str, Any] = {name: getattr(detector, name) for name in ("threshold", "accept", "provable", "eps")}
    save_model(detector.model, folder / MODEL_FILE, classes=list(detector.classes) or None, **stated)
    save_calibration(detector, folder)


def load(kind: type[Detector], path: Path | str, *, device: str | torch.device, trust_code: bool) -> Detector:
    """The detector that a file, a folder or a repository on the Hub holds."""
    model, about = load_model(path, trust_code=trust_code)
    if not isinstance(model, ProoD | Discriminator):
        raise Unsupported(f"{path} holds a classifier without a certificate: combine it with a discriminator first")
    if fault := constant(model):
        warn(f"{path}: {fault}")
    classes = about.classes if isinstance(model, ProoD) else None
    detector = kind(model, threshold=about.threshold, classes=classes, device=device)
    detector.accept, detector.eps = about.accept, about.eps
    detector.provable = detector.provable if about.provable is None else about.provable
    if (known := calibration(path, detector.model)) is not None:
        detector.use(known)
    return detector


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
    save_model(detector.model, folder / MODEL_FILE, **facts)


def calibration(path: Path | str, model: nn.Module) -> Calibration | None:
    """The one beside the file of this model, where `path` is a folder, or a repository on the Hub, that has one."""
    file = place_of(path) / CALIBRATION_FILE
    if not file.is_file():
        return None
    try:
        facts = renamed(json_of(content(file)))
        scores = np.asarray(facts["scores"], dtype=np.float64)
        found = Calibration(**{name: facts[name] for name in _NUMBERS}, scores=scores)
        sound = scores.ndim == 1 and 1 <= found.index <= len(scores) and bool((np.diff(scores) >= 0).all())
        sound = sound and scores[found.index - 1] == found.score and isinstance(found.threshold, float)
    except OSError as error:
        raise NoAccess(f"cannot read {file} ({error.strerror}): check its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"cannot read {file} ({error!r}): calibrate the detector again") from None
    if not sound:
        raise Damaged(f"{file} is not a calibration as Prood writes it: calibrate the detector again")
    if facts.get("weights") != fingerprint(model):
        raise Mismatch(f"{file} was made with other weights than the model beside it: calibrate the detector again")
    return found
