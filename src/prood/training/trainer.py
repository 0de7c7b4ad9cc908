"""Train a method by its recipe, which stands for image sets and a network, into a run's folder; or combine two runs."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch
from rich.console import Console
from torch import Tensor, nn

from prood import data, processes
from prood.data import Images, ImageSet
from prood.errors import BadValue, Diverged, Mismatch, first_line
from prood.methods import Method, Objective
from prood.methods.base import deployed
from prood.models import Discriminator, Metadata, ProoD, load, save, score_of
from prood.models.architectures import takes
from prood.training.batches import Batches
from prood.training.loop import fit
from prood.training.recipe import Recipe
from prood.training.run import Run


class How(TypedDict, total=False):
    """How a run is carried out; nothing of this changes its weights."""

    resume: bool
    device: str | None
    workers: int | None
    console: Console | None


def train(
    method: str,
    recipe: Recipe,
    run: Path | str,
    *,
    discriminator: Path | str | None = None,
    shift: float | None = None,
    **how: Unpack[How],
) -> nn.Module:
    """Train by `recipe` into the folder `run` and return the model, in eval mode.

    `discriminator` and `shift` are for joint models: the folder of the trained discriminator, and Δ if it is not to be
    the recipe's. `resume=True` continues a run. `device` is by default a GPU if there is one, else the CPU. `workers`
    processes read the images of a set that is too big for memory. Start several processes with torchrun.
    """
    target = processes.device(how.get("device"))
    processes.start(target)
    options, declared = recipe.options(method), recipe.method(method)
    frozen, facts = frozen_discriminator(declared, discriminator, shift, target)
    inside = training_set(recipe.data.inside, recipe)
    outside = training_set(recipe.data.outside, recipe, like=inside) if declared.needs_outside else None
    used = {images.name: images.fingerprint() for images in (inside, outside) if images is not None}
    resolved: dict[str, Any] = recipe.resolved(method) | {"data": used}
    model = make_network(recipe, method, inside, outside)
    if frozen is not None:
        shift = recipe.shift if shift is None else shift
        resolved |= {"discriminator_run": str(discriminator), "shift": shift}
        model = ProoD(model, frozen, shift)
    model.to(target)
    augment = recipe.augment_for(method)
    batches = Batches(
        inside, outside, options, augment=augment, noise=declared.needs_noise, device=target, workers=how.get("workers")
    )
    try_out(model, recipe, method, inside, target)

    folder = Run(run)
    with folder.claimed() if processes.is_main() else nullcontext():  # by one of them, for all
        if processes.is_main():  # only now, when nothing is left that a typing error could break
            folder.open(resolved, resume=how.get("resume", False), defaults=recipe.defaults(method))
        processes.barrier()
        if folder.finished:
            model = load(folder.folder, device=target)[0]
        else:
            if not folder.checkpoint.is_file():  # else it was prepared, and the checkpoint has it all
                declared.prepare(model, batches)
            if isinstance(declared, Objective):
                fit(model, declared, batches, options, folder, console=how.get("console") or Console(), title=method)
            classes = None if declared.kind == "discriminator" else class_names(inside)
            facts |= {"classes": classes, "eps": getattr(declared, "eps", facts.get("eps")), "inside": inside.name}
            facts |= {"data": used | facts.get("data", {}) | used}  # its own come first
            if processes.is_main():
                save(model.eval(), folder.model, recipe=resolved, seed=options.seed, **facts)
                folder.checkpoint.unlink(missing_ok=True)
            processes.barrier()
    metrics = folder.last_metrics()
    if metrics and isinstance(declared, Objective) and (complaint := declared.diagnose(metrics)):
        raise Diverged(f"{folder.folder} was trained to the end, but {complaint}")
    return model


def combine(
    classifier: Path | str, discriminator: Path | str, run: Path | str, *, shift: float, resume: bool = False
) -> ProoD:
    """ProoD-S (Algorithm 2): a classifier and a discriminator that were trained apart, as one joint model."""
    f, about_f = load(classifier)
    if isinstance(f, Discriminator | ProoD):
        raise Mismatch(f"{classifier} holds a {type(f).__name__}: give a plain classifier to combine")
    g, about_g = _discriminator(discriminator)
    model = ProoD(f, g, shift).eval()
    answer(model, torch.full((1, *g.image), 0.5), f"{classifier} does not take the images of {discriminator}")
    parts = {"classifier_run": str(classifier), "discriminator_run": str(discriminator), "shift": shift}
    resolved = {"method": "combine", **parts, "evaluate": evaluate_of_parts(about_f, about_g)}
    folder = Run(run)
    folder.open(resolved, resume=resume, at_once=True)
    facts: dict[str, Any] = {"classes": about_f.classes, "eps": about_g.eps, "inside": about_f.inside}
    save(model, folder.model, recipe=resolved, data=about_f.data | about_g.data, **facts)
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
    return model, about


def held_back(recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """The images of both training sets, inside and outside, that the recipe keeps from training.

    They serve to choose a shift, a threshold or an epoch. Every method and every seed leaves the same ones out.
    """
    if not recipe.data.held_back:
        raise BadValue(f"recipe {recipe.name!r} holds no images back: say how many with data.held_back, and train")
    count = recipe.data.held_back  # the recipe's limit and seed have no say in which
    _, inside = data.open_set(recipe.data.inside, split="train").divided(count, seed=0)
    _, outside = data.open_set(recipe.data.outside, like=inside, split="train").divided(count, seed=0)
    return inside.load(), outside.load()


def images_to_choose_by(recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """Inside and outside, for choices: what the recipe holds back from training, else the splits `validation`."""
    if recipe.data.held_back:
        return held_back(recipe)
    inside = data.load(f"{recipe.data.inside.removesuffix(':train')}:validation")
    return inside, data.load(f"{recipe.data.outside.removesuffix(':train')}:validation", like=inside)


def training_set(name: str, recipe: Recipe, like: Images | None = None) -> Images:
    """The set to train on, without what is held back, or the part of that which the recipe's limit leaves."""
    found = data.open_set(name, like=like, split="train")
    if recipe.data.held_back:
        found, _ = found.divided(recipe.data.held_back, seed=0)
    return found.subset(recipe.data.limit, seed=0) if recipe.data.limit else found


def class_names(inside: Images) -> list[str]:
    """The set's own, or the numbers of its labels."""
    if inside.labels is None:
        raise Mismatch(f"{inside.name} has no labels: a classifier cannot be trained on it")
    highest = int(inside.labels.max())
    if highest >= 100_000:  # a mistake, before memory is asked for so many classes
        raise BadValue(f"{inside.name} has a label {highest}: number the classes from 0, without gaps")
    return list(inside.classes or map(str, range(highest + 1)))


def make_network(recipe: Recipe, method: str, inside: Images, outside: Images | None) -> nn.Module:
    """The method's network for these images, its weights drawn from the recipe's seed."""
    declared = recipe.method(method)
    bare = declared.kind == "discriminator"
    spec = ({"name": "discriminator"} if bare else {"classes": len(class_names(inside))}) | recipe.network(method)
    channels = inside.shape[0]
    if takes(spec, "image"):
        spec = {"image": list(inside.shape)} | spec
    if takes(spec, "channels") and channels != 1:
        spec = {"channels": channels} | spec
    for key in ("mean", "std"):
        given = spec.get(key)
        if isinstance(given, list | tuple) and len(given) != channels:
            name = f"networks.{recipe.network_table(method)}.{key}"
            raise BadValue(f"{name} must have {channels} numbers, as {inside.name} has channels, not {len(given)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.options(method).seed)
        return declared.network(spec, inside, outside)


def try_out(model: nn.Module, recipe: Recipe, method: str, inside: Images, device: torch.device) -> None:
    """Show the model one grey image: does it take this shape, and has it an output for each class?"""
    declared, table = recipe.method(method), recipe.network_table(method)
    parts = [(model, f"the network of [networks.{table}]")]
    if isinstance(model, ProoD):
        parts = [(model.discriminator, "the discriminator"), (model.classifier, parts[0][1])]
    image = torch.full((1, *inside.shape), 0.5, device=device)
    with deployed(model):
        for part, name in parts:
            output = answer(part, image, f"{name} does not take images of {inside.name}")
    if declared.kind != "discriminator" and (given := output.shape[1]) < (classes := len(class_names(inside))):
        raise BadValue(f"networks.{table}.classes = {given} is too few: {inside.name} has {classes}, leave it out")
    found, meant = type(score_of(model)), declared.score
    if not issubclass(found, meant):
        fault = f"method {method!r} detects by {meant.__name__}, its {type(model).__name__} by {found.__name__}"
        raise Mismatch(f"{fault}: change 'score' of {type(declared).__name__}, or its network")


@torch.no_grad()
def answer(model: nn.Module, image: Tensor, fault: str) -> Tensor:
    """What the model makes of an image; `fault` says what is wrong if it takes none of this shape."""
    try:
        output: Tensor = model(image)
    except (RuntimeError, ValueError) as error:
        raise Mismatch(f"{fault}, of shape {tuple(image.shape[1:])}: {first_line(error)}") from None
    return output
