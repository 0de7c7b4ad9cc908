"""Guard somebody else's classifier with a discriminator of ours: ProoD-S (Algorithm 2), as a run's folder."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from prood import processes
from prood.detector import Detector
from prood.errors import BadValue, Damaged, Mismatch
from prood.models import MODEL_FILE, Discriminator, ProoD, WrapOptions, load, open_classifier, save
from prood.models.wrapped import Wrapped, trial_images
from prood.reading import json_of
from prood.training import Run


@dataclass(frozen=True, eq=False)
class Guarded:
    """What `wrap` made: the detector as it was loaded from its folder, and a look at its classifier."""

    detector: Detector
    classifier: Wrapped


def wrap(
    classifier: str | Path,
    discriminator: str | Path,
    run: str | Path,
    *,
    shift: float,
    options: WrapOptions | None = None,
    device: str | None = None,
) -> Guarded:
    """A classifier (see `prood.models.open_classifier` for its names), guarded, in the folder `run`.

    The folder is loaded again before it counts as written, and must give the same logits.
    """
    g, about = load(discriminator)
    if not isinstance(g, Discriminator):
        raise Mismatch(f"{discriminator} holds no discriminator: train one with 'prood train discriminator'")
    f, names = open_classifier(classifier, g.image, options=options)
    detector = Detector(ProoD(f, g, shift), classes=names, device=processes.device(device))
    chosen = asdict(replace(options or WrapOptions(), classes=None))  # the model's file has the names
    kept = {key: value for key, value in chosen.items() if value is not None and key != "trust_code"}
    resolved: dict[str, Any] = {
        "method": "wrap",
        "classifier": str(classifier),
        "discriminator_run": str(discriminator),
        "shift": shift,
        "options": {key: str(value) if isinstance(value, Path) else value for key, value in kept.items()},
        "evaluate": (about.recipe or {}).get("evaluate", {}),
    }
    folder = Run(run)
    folder.open(resolved, resume=False, at_once=True)
    facts: dict[str, Any] = {"eps": about.eps, "inside": about.inside, "data": about.data, "recipe": resolved}
    facts |= {"classes": None if names is None else list(names)}
    save(detector.model, folder.model, **facts)
    return Guarded(_loaded_again(detector, folder), f)


def read_classes(path: Path) -> tuple[str, ...]:
    """Names of classes from a file: a JSON list, or one name a line."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows puts a mark in front
        names = json_of(text) if text.lstrip().startswith("[") else [line.strip() for line in text.splitlines()]
    except (OSError, ValueError) as error:
        raise Damaged(f"cannot read the names of the classes from {path}: {error}") from None
    names = [name for name in names if name != ""]
    if not all(isinstance(name, str) for name in names) or len(names) < 2:
        raise BadValue(f"{path} names no classes: give a JSON list of texts, or one name a line, two or more")
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise BadValue(f"{path} has the class {twice[0]!r} twice: give each a name of its own")
    return tuple(names)


def _loaded_again(detector: Detector, folder: Run) -> Detector:
    """A package that builds another network than it gave would otherwise be met by whoever deploys it."""
    again = Detector.load(folder.folder, device=detector.device, trust_code=True)  # which was opened already
    images = trial_images(detector.shape).to(detector.device)
    with torch.no_grad():
        before, after = detector.joint().logits(images), again.joint().logits(images)
    if not torch.allclose(before, after, rtol=1e-4, atol=1e-4):
        (folder.folder / MODEL_FILE).unlink()
        folder.recipe.unlink()
        raise Mismatch("the classifier gives other logits once its folder is loaded: export it to ONNX, and wrap that")
    return again
