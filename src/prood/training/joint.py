"""Joint models from parts that are trained: combined, or with the discriminator held fixed."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from prood.data.images import Shape
from prood.errors import BadValue, Collapsed, Mismatch
from prood.methods import Method
from prood.models import Discriminator, Metadata, ProoD, WrapOptions, load, open_classifier, save
from prood.models.confidence import renamed
from prood.models.constancy import constant
from prood.models.fitting import fitted
from prood.models.wrapped import Wrapped, is_run, open_beside, trial_images
from prood.training.networks import answer
from prood.training.run import Run


def combine(
    classifier: Path | str,
    discriminator: Path | str,
    run: Path | str,
    *,
    shift: float,
    options: WrapOptions | None = None,
    resume: bool = False,
) -> ProoD:
    """ProoD-S (Algorithm 2): a classifier and a discriminator that were trained apart, as one joint model.

    The classifier is a run or anything that `prood.models.open_classifier` opens, with what `options` say of it. The
    joint model takes its images; a discriminator for smaller ones averages them first. A folder with somebody else's
    classifier is loaded again before it counts as written, and must give the same logits.
    """
    g, about_g = _discriminator(discriminator)
    f: nn.Module
    if options is None and is_run(classifier):
        f, about_f = load(classifier)
        if isinstance(f, Discriminator | ProoD):
            raise Mismatch(f"{classifier} holds a {type(f).__name__}: give a plain classifier to combine")
        if about_f.image is not None:
            g = fitted(g, about_f.image)
    else:
        f, g, names = open_beside(classifier, g, options=options)
        about_f = Metadata({}, classes=None if names is None else list(names))
    parts = {"classifier_run": str(classifier), "discriminator_run": str(discriminator), "shift": shift}
    parts |= {} if options is None else {"options": _said(options)}
    resolved = {"method": "combine", **parts, "evaluate": evaluate_of_parts(about_f, about_g)}
    inside = about_g.inside if about_f.inside is None else about_f.inside
    facts: dict[str, Any] = {"classes": about_f.classes, "eps": about_g.eps, "inside": inside, "recipe": resolved}
    facts |= {"data": about_f.data | about_g.data}
    fault = f"{classifier} does not take the images of {discriminator}"
    model = join(ProoD(f, g, shift), Run(run), facts, fault=fault, resume=resume)
    if not about_f.architecture:  # somebody else's
        _check_again(Run(run), f, g.image)
    return model


def open_into(
    run: Path | str,
    classifier: Path | str,
    image: Shape,
    *,
    options: WrapOptions | None = None,
    classes: tuple[str, ...] | None = None,
) -> Wrapped:
    """A classifier alone in a run's folder, as `combine` takes it, for a joint model's images of this shape.

    Where it does not name its classes, they are called `classes`, if these are as many.
    """
    f, names = open_classifier(classifier, image, options=options)
    if names is None and classes is not None and len(classes) == f.facts.classes:
        names = classes
    folder = Run(run)
    resolved = {"method": "open", "classifier": str(classifier), "image": list(image)}
    folder.open(resolved, resume=False, at_once=True)
    save(f, folder.model, classes=None if names is None else list(names), image=list(image), recipe=resolved)
    _check_again(folder, f, image)
    return f


def join(model: ProoD, run: Run, facts: dict[str, Any], *, fault: str, resume: bool = False) -> ProoD:
    """A joint model of two parts that were made apart, as a run: tried out on an image, then written at once.

    `facts` are what its file says, the `recipe` among them. `fault` is what is wrong if it takes no such image.
    """
    answer(model.eval(), torch.full((1, *model.discriminator.image), 0.5), fault)
    run.open(facts["recipe"], resume=resume, at_once=True)
    save(model, run.model, **facts)
    return model


def evaluate_of_parts(classifier: Metadata, discriminator: Metadata) -> dict[str, Any]:
    """[evaluate] of a joint model: the classifier's, except for the bound, as g is what is certified."""
    of_f, of_g = (renamed((about.recipe or {}).get("evaluate", {})) for about in (classifier, discriminator))
    if not of_f:  # somebody else's
        return dict(of_g)
    return {key: of_f[key] for key in of_f if key != "bound"} | {key: of_g[key] for key in of_g if key == "bound"}


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
        raise Collapsed(f"{path} cannot be used: {fault}")
    return model, about


def _said(options: WrapOptions) -> dict[str, Any]:
    """What was said of a classifier, as JSON; the names of its classes stand in the model's file."""
    stated = asdict(replace(options, classes=None))
    del stated["trust_code"]
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in stated.items() if value is not None
    }


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
        raise Mismatch("the classifier's logits change when it is loaded: export it to ONNX, and name that file")
