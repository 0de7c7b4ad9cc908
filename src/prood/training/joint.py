"""Joint models from parts that are trained: combined, or with the discriminator held fixed."""

from pathlib import Path
from typing import Any

import torch

from prood.errors import BadValue, Collapsed, Mismatch
from prood.methods import Method
from prood.models import Discriminator, Metadata, ProoD, load, save
from prood.models.constancy import constant
from prood.models.fitting import fitted
from prood.training.networks import answer
from prood.training.run import Run


def combine(
    classifier: Path | str, discriminator: Path | str, run: Path | str, *, shift: float, resume: bool = False
) -> ProoD:
    """ProoD-S (Algorithm 2): a classifier and a discriminator that were trained apart, as one joint model.

    It takes the images that the classifier was trained on; a discriminator for smaller ones averages them first.
    """
    f, about_f = load(classifier)
    if isinstance(f, Discriminator | ProoD):
        raise Mismatch(f"{classifier} holds a {type(f).__name__}: give a plain classifier to combine")
    g, about_g = _discriminator(discriminator)
    if about_f.image is not None:
        g = fitted(g, about_f.image)
    parts = {"classifier_run": str(classifier), "discriminator_run": str(discriminator), "shift": shift}
    resolved = {"method": "combine", **parts, "evaluate": evaluate_of_parts(about_f, about_g)}
    inside = about_g.inside if about_f.inside is None else about_f.inside
    facts: dict[str, Any] = {"classes": about_f.classes, "eps": about_g.eps, "inside": inside, "recipe": resolved}
    facts |= {"data": about_f.data | about_g.data}
    fault = f"{classifier} does not take the images of {discriminator}"
    return join(ProoD(f, g, shift), Run(run), facts, fault=fault, resume=resume)


def join(model: ProoD, run: Run, facts: dict[str, Any], *, fault: str, resume: bool = False) -> ProoD:
    """A joint model of two parts that were made apart, as a run: tried out on an image, then written at once.

    `facts` are what its file says, the `recipe` among them. `fault` is what is wrong if it takes no such image.
    """
    answer(model.eval(), torch.full((1, *model.discriminator.image), 0.5), fault)
    run.open(facts["recipe"], resume=resume, at_once=True)
    save(model, run.model, **facts)
    return model


def evaluate_of_parts(classifier: Metadata, discriminator: Metadata) -> dict[str, Any]:
    """[evaluate] of a joint model: the classifier's, but for the method, as it is g that is certified."""
    of_f, of_g = ((about.recipe or {}).get("evaluate", {}) for about in (classifier, discriminator))
    return {key: of_f[key] for key in of_f if key != "method"} | {key: of_g[key] for key in of_g if key == "method"}


def frozen_discriminator(
    method: Method, path: Path | str | None, shift: float | None, device: torch.device
) -> tuple[Discriminator | None, dict[str, Any]]:
    """The discriminator of a joint model, and what its file says of its radius and data; None for other methods."""
    if method.kind != "joint":
        if path is not None or shift is not None:
            raise BadValue(f"--discriminator and --shift belong to 'prood train prood', not to {method.name}")
        return None, {}
    if path is None:
        raise BadValue("semi-joint training needs a trained discriminator: give one with --discriminator RUN")
    model, about = _discriminator(path, device)
    return model.requires_grad_(False), {"eps": about.eps, "data": about.data}


def _discriminator(path: Path | str, device: str | torch.device = "cpu") -> tuple[Discriminator, Metadata]:
    model, about = load(path, device=device)
    if not isinstance(model, Discriminator):
        raise Mismatch(f"{path} holds no discriminator: train one with 'prood train discriminator'")
    if fault := constant(model):
        raise Collapsed(f"{path} is of no use: {fault}")
    return model, about
