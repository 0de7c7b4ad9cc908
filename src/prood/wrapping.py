"""Guard somebody else's classifier with a discriminator of ours: ProoD-S (Algorithm 2), as a run's folder."""

from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from prood import processes
from prood.data.images import Shape
from prood.detector import Detector
from prood.errors import BadValue, Collapsed, Damaged, Mismatch
from prood.models import Discriminator, ProoD, WrapOptions, load, save
from prood.models.constancy import constant
from prood.models.wrapped import Wrapped, open_beside, open_classifier, trial_images
from prood.reading import content, json_of
from prood.training import Run
from prood.training.joint import join


@dataclass(frozen=True, eq=False)
class Guarded:
    """What `wrap` made: the detector as it was loaded from its folder, and a look at its classifier.

    The discriminator looks at averages of `averages`×`averages` pixels.
    """

    detector: Detector
    classifier: Wrapped
    averages: int = 1


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

    It takes the classifier's images; a discriminator for smaller ones averages them first. The folder is loaded again
    before it counts as written, and must give the same logits.
    """
    g, about = load(discriminator)
    if not isinstance(g, Discriminator):
        raise Mismatch(f"{discriminator} holds no discriminator: train one with 'prood train discriminator'")
    if fault := constant(g):
        raise Collapsed(f"{discriminator} is of no use: {fault}")
    side = g.image[1]
    f, g, names = open_beside(classifier, g, options=options)
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
    facts: dict[str, Any] = {"eps": about.eps, "inside": about.inside, "data": about.data, "recipe": resolved}
    facts |= {"classes": None if names is None else list(names)}
    folder, fault = Run(run), f"{classifier} does not take the images of {discriminator}"
    join(ProoD(f, g, shift), folder, facts, fault=fault)
    _check_again(folder, f, g.image)
    return Guarded(Detector.load(folder.folder, device=processes.device(device)), f, g.image[1] // side)


def open_into(run: str | Path, classifier: str | Path, image: Shape, *, options: WrapOptions | None = None) -> Wrapped:
    """A classifier alone in a run's folder, as `combine` takes it, for a joint model's images of this shape."""
    f, names = open_classifier(classifier, image, options=options)
    folder = Run(run)
    resolved = {"method": "open", "classifier": str(classifier), "image": list(image)}
    folder.open(resolved, resume=False, at_once=True)
    save(f, folder.model, classes=None if names is None else list(names), image=list(image), recipe=resolved)
    _check_again(folder, f, image)
    return f


def read_classes(path: Path) -> tuple[str, ...]:
    """Names of classes from a file: a JSON list, or one name a line."""
    try:
        text = content(path, 2**24).decode("utf-8-sig")  # Windows puts a mark in front
        names = json_of(text) if text.lstrip().startswith("[") else [line.strip() for line in text.splitlines()]
    except (OSError, ValueError) as error:
        raise Damaged(f"cannot read the names of the classes from {path}: {error}") from None
    names = [name for name in names if name != ""]
    if not all(isinstance(name, str) for name in names) or len(names) < 2:
        raise BadValue(f"{path} names no classes: give a JSON list of texts, or one name a line, two or more")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise BadValue(f"{path} has the class {twice!r} twice: give each a name of its own")
    return tuple(names)


def _check_again(folder: Run, classifier: nn.Module, image: Shape) -> None:
    """A package that builds another network than it gave would otherwise be met by whoever deploys it."""
    again, _ = load(folder.folder, trust_code=True)  # which was opened already
    again = again.classifier if isinstance(again, ProoD) else again
    images = trial_images(image)
    with torch.no_grad():
        before, after = classifier.cpu().eval()(images), again(images)
    if not torch.allclose(before, after, rtol=1e-4, atol=1e-4):
        folder.model.unlink()
        folder.recipe.unlink()
        raise Mismatch("the classifier gives other logits once its folder is loaded: export it to ONNX, and name that")
