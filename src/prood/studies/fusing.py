"""Fuse a trained classifier and discriminator by a curve that is fitted on held-back images: a run's folder."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prood import processes
from prood.atomic import write_text
from prood.errors import BadValue, Mismatch, NotFound
from prood.models import Discriminator, Fusion, ProoD, load, save
from prood.studies.curve import Fitted, best_shift, fit_fusion, pairs
from prood.training import Recipe, Run, images_to_choose_by
from prood.training.joint import evaluate_of_parts


@dataclass(frozen=True)
class Fused:
    """The fused model, and what decided: AUC and GAUC on held-back images, its own and those of the best shift."""

    model: Fusion
    fitted: Fitted
    single: Fitted
    classifier_auc: float
    ceiling: float


@dataclass(frozen=True)
class FuseOptions:
    """For the highest GAUC at radius `eps`, by default g's, at an AUC of the classifier's less `auc_drop` points.

    `shift` sets the scale of the confidences alone.
    """

    auc_drop: float = 0.5
    shift: float = 0.0
    eps: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.auc_drop <= 100:
            raise BadValue(f"the AUC may drop by 0 to 100 points, not by {self.auc_drop}")
        if not math.isfinite(self.shift):
            raise BadValue(f"a shift is a finite number, not {self.shift}")
        if self.eps is not None and not 0 <= self.eps < math.inf:
            raise BadValue(f"eps is a radius, 0 or more, not {self.eps}")


def fuse(
    classifier: Path | str,
    discriminator: Path | str,
    run: Path | str,
    *,
    recipe: Recipe,
    options: FuseOptions | None = None,
    resume: bool = False,
    device: str | None = None,
) -> Fused:
    """Fit the curve on images that the recipe keeps from training. Of a joint model, `classifier` is its classifier.

    The folder holds the model, and fusion.json with what it was chosen by.
    """
    options = options or FuseOptions()
    target = processes.device(device)
    f, about_f = load(classifier, device=target)
    g, about_g = load(discriminator, device=target)
    f = f.classifier if isinstance(f, ProoD) else f
    if isinstance(f, Discriminator):
        raise Mismatch(f"{classifier} holds a discriminator: give a classifier to fuse it with")
    if not isinstance(g, Discriminator):
        raise Mismatch(f"{discriminator} holds no discriminator: train one with 'prood train discriminator'")
    radius = about_g.eps if options.eps is None else options.eps
    if radius is None:
        raise NotFound(f"{discriminator} was not trained for a radius: give one with --eps")
    inside, outside = images_to_choose_by(recipe)
    if g.image != inside.shape:
        fault = f"recipe {recipe.name!r} has images of shape {inside.shape}, and {discriminator} takes {g.image}"
        raise Mismatch(f"{fault}: name the one that it was trained by with --recipe")
    resolved: dict[str, Any] = {
        "method": "fuse",
        "classifier_run": str(classifier),
        "discriminator_run": str(discriminator),
        "recipe": recipe.name,
        **asdict(options) | {"eps": radius},
        "held_back": {inside.name: inside.fingerprint(), outside.name: outside.fingerprint()},
        "evaluate": evaluate_of_parts(about_f, about_g),
    }
    folder = Run(run)
    if folder.recipe.is_file():
        folder.open(resolved, resume=resume)  # what is in the way is said now, not after the work
    sample = pairs(f, g, inside, outside, radius, device=target)
    least = sample.classifier_auc - options.auc_drop / 100
    fitted, single = fit_fusion(sample, least), best_shift(sample, least)
    model = Fusion(f, g, fitted.curve, options.shift).eval()
    made = Fused(model, fitted, single, sample.classifier_auc, sample.ceiling)
    folder.open(resolved, resume=resume or folder.recipe.is_file())  # only now, when nothing is left that could fail
    facts = {
        "fusion": asdict(fitted),
        "single_shift": asdict(single),
        "classifier_auc": made.classifier_auc,
        "ceiling": made.ceiling,
        "least_auc": least,
        "images": {"inside": len(inside), "outside": len(outside)},
    }
    write_text(folder.folder / "fusion.json", json.dumps(facts, indent=1) + "\n")
    known: dict[str, Any] = {"inside": about_f.inside, "data": about_f.data | about_g.data}
    save(model, folder.model, classes=about_f.classes, eps=radius, recipe=resolved, **known)
    return made
