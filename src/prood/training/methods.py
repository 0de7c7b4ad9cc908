"""Train a method by its recipe, or combine two trained parts; the result is a run's folder."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from prood import data, processes
from prood.data import Images, ImageSet
from prood.errors import ProodError, first_line
from prood.methods.attack import deployed
from prood.models import Discriminator, Metadata, ProoD, load, save
from prood.models.architectures import takes
from prood.training.batches import Batches
from prood.training.loop import fit
from prood.training.recipe import Recipe
from prood.training.run import Run

MOST_CLASSES = 100_000
"""A label beyond is taken for a mistake, before memory is asked for so many classes."""


def train(
    method: str,
    recipe: Recipe,
    run: Path | str,
    *,
    discriminator: Path | str | None = None,
    shift: float | None = None,
    resume: bool = False,
    device: str | None = None,
    workers: int | None = None,
    console: Console | None = None,
) -> nn.Module:
    """Train by `recipe` into the folder `run` and return the model, in eval mode.

    `discriminator` and `shift` are for method "prood": the folder of the trained discriminator, and Δ if it is not to
    be the recipe's. The device is a GPU if there is one, else the CPU. `workers` processes read the images of a set
    that is too big for memory. Start several processes with torchrun.
    """
    target = processes.device(device)
    processes.start(target)
    options, objective = recipe.options(method), recipe.objective(method)
    frozen, facts = _frozen_discriminator(method, discriminator, shift, target)
    inside = _opened(recipe.data.inside, recipe)
    outside = _opened(recipe.data.outside, recipe, like=inside) if objective.needs_outside else None
    used = {images.name: images.fingerprint() for images in (inside, outside) if images is not None}
    resolved = recipe.resolved(method) | {"data": used}
    if frozen is not None:
        shift = recipe.shift if shift is None else shift
        resolved |= {"discriminator_run": str(discriminator), "shift": shift}
    model = _network(recipe, method, inside, outside, frozen, shift or 0.0).to(target)
    batches = Batches(
        inside,
        outside,
        batch=options.batch,
        seed=options.seed,
        augment=recipe.augment_for(method),
        noise=objective.needs_noise,
        device=target,
        workers=workers,
        compile=options.compile,
    )
    _try_out(model, recipe, method, inside, target)

    folder = Run(run)
    with folder.claimed() if processes.is_main() else nullcontext():  # by one of them, for all
        if processes.is_main():  # only now, when nothing is left that a typing error could break
            folder.open(resolved, resume=resume, defaults=recipe.defaults(method))
        processes.barrier()
        if folder.finished:
            model = load(folder.folder, device=target)[0]
        else:
            if not folder.checkpoint.is_file():  # else it was prepared, and the checkpoint has it all
                objective.prepare(model, batches)
            fit(model, objective, batches, options, folder, console=console or Console(), title=method)
            facts |= {"classes": None if method == "discriminator" else _class_names(inside)}
            facts |= {
                "eps": getattr(objective, "eps", facts.get("eps")),
                "inside": inside.name,
                "data": used | facts.get("data", {}) | used,  # its own come first
            }
            if processes.is_main():
                save(model, folder.model, recipe=resolved, seed=options.seed, **facts)
                folder.checkpoint.unlink(missing_ok=True)
            processes.barrier()
    metrics = folder.last_metrics()
    if metrics and (complaint := objective.diagnose(metrics)):
        raise ProodError(f"{folder.folder} was trained to the end, but {complaint}")
    return model


def combine(
    classifier: Path | str, discriminator: Path | str, run: Path | str, *, shift: float, resume: bool = False
) -> ProoD:
    """ProoD-S (Algorithm 2): a classifier and a discriminator that were trained apart, as one joint model."""
    f, about_f = load(classifier)
    g, about_g = load(discriminator)
    if isinstance(f, Discriminator | ProoD):
        raise ProodError(f"{classifier} holds a {type(f).__name__}: give a plain classifier to combine")
    if not isinstance(g, Discriminator):
        raise ProodError(f"{discriminator} holds no discriminator: train one with 'prood train discriminator'")
    model = ProoD(f, g, shift).eval()
    shape = g.image
    try:
        with torch.no_grad():
            model(torch.full((1, *shape), 0.5))
    except (RuntimeError, ValueError) as error:
        fault = f"{classifier} does not take the images of {discriminator}, of shape {shape}"
        raise ProodError(f"{fault}: {first_line(error)}") from None
    resolved: dict[str, Any] = {
        "method": "combine",
        "classifier_run": str(classifier),
        "discriminator_run": str(discriminator),
        "shift": shift,
        "evaluate": evaluate_of_parts(about_f, about_g),
    }
    folder = Run(run)
    folder.open(resolved, resume=resume, at_once=True)
    facts: dict[str, Any] = {"classes": about_f.classes, "eps": about_g.eps, "inside": about_f.inside}
    save(model, folder.model, recipe=resolved, data=about_f.data | about_g.data, **facts)
    return model


def evaluate_of_parts(classifier: Metadata, discriminator: Metadata) -> dict[str, Any]:
    """[evaluate] of a joint model: the classifier's, but for the method, as it is g that is certified."""
    tables = [(about.recipe or {}).get("evaluate", {}) for about in (classifier, discriminator)]
    rest = {key: value for key, value in tables[0].items() if key != "method"}
    return rest | ({"method": tables[1]["method"]} if "method" in tables[1] else {})


def _frozen_discriminator(
    method: str, path: Path | str | None, shift: float | None, device: torch.device
) -> tuple[Discriminator | None, dict[str, Any]]:
    """The discriminator of a joint model, and what its file says of its radius and data."""
    if method != "prood":
        if path is not None or shift is not None:
            raise ProodError(f"--discriminator and --shift belong to 'prood train prood', not to {method}")
        return None, {}
    if path is None:
        raise ProodError("semi-joint training needs a trained discriminator: give one with --discriminator RUN")
    model, about = load(path, device=device)
    if not isinstance(model, Discriminator):
        raise ProodError(f"{path} holds no discriminator: train one with 'prood train discriminator'")
    return model.requires_grad_(False), {"eps": about.eps, "data": about.data}


def held_back(recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """The images of both training sets, inside and outside, that the recipe keeps from training.

    They serve to choose a shift, a threshold or an epoch. Every method and every seed leaves the same ones out.
    """
    if not recipe.data.held_back:
        raise ProodError(f"recipe {recipe.name!r} holds no images back: say how many with data.held_back, and train")
    _, inside = _divided(recipe.data.inside, recipe)
    _, outside = _divided(recipe.data.outside, recipe, like=inside)
    return inside.load(), outside.load()


def images_to_choose_by(recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """Inside and outside, for choices: what the recipe holds back from training, else the splits `validation`."""
    if recipe.data.held_back:
        return held_back(recipe)
    inside = data.load(f"{recipe.data.inside.removesuffix(':train')}:validation")
    return inside, data.load(f"{recipe.data.outside.removesuffix(':train')}:validation", like=inside)


def _opened(name: str, recipe: Recipe, like: Images | None = None) -> Images:
    """The set to train on, without what is held back, or the part of that which the recipe's limit leaves."""
    if recipe.data.held_back:
        found, _ = _divided(name, recipe, like)
    else:
        found = data.open_set(name, like=like, split="train")
    return found.subset(recipe.data.limit, seed=0) if recipe.data.limit else found


def _divided(name: str, recipe: Recipe, like: Images | None = None) -> tuple[Images, Images]:
    """A training set without what is held back, and that; the recipe's limit and seed have no say in it."""
    return data.open_set(name, like=like, split="train").divided(recipe.data.held_back, seed=0)


def _class_names(inside: Images) -> list[str]:
    """The set's own, or the numbers of its labels."""
    if inside.labels is None:
        raise ProodError(f"{inside.name} has no labels: a classifier cannot be trained on it")
    highest = int(inside.labels.max())
    if highest >= MOST_CLASSES:
        raise ProodError(f"{inside.name} has a label {highest}: number the classes from 0, without gaps")
    return list(inside.classes or map(str, range(highest + 1)))


def _network(
    recipe: Recipe,
    method: str,
    inside: Images,
    outside: Images | None,
    frozen: Discriminator | None,
    shift: float,
) -> nn.Module:
    """The network to train, its weights drawn from the recipe's seed."""
    kind = {"name": "discriminator"} if method == "discriminator" else {"classes": len(_class_names(inside))}
    spec = kind | recipe.network(method)
    channels = inside.shape[0]
    if takes(spec, "image"):
        spec = {"image": list(inside.shape)} | spec
    if takes(spec, "channels") and channels != 1:
        spec = {"channels": channels} | spec
    for key in ("mean", "std"):
        given = spec.get(key)
        if isinstance(given, list | tuple) and len(given) != channels:
            raise ProodError(
                f"networks.{_table(recipe, method)}.{key} must have {channels} numbers, one for each channel of "
                f"{inside.name}, not {len(given)}: change it, or leave it out"
            )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.options(method).seed)
        network = recipe.objective(method).network(spec, inside, outside)
    return network if frozen is None else ProoD(network, frozen, shift)


def _table(recipe: Recipe, method: str) -> str:
    """The name of the table under [networks] that says what this method trains."""
    return method if method == "discriminator" or method in recipe.own_networks else "classifier"


@torch.no_grad()
def _try_out(model: nn.Module, recipe: Recipe, method: str, inside: Images, device: torch.device) -> None:
    """Show the model one grey image: does it take this shape, and has it an output for each class?"""
    image = torch.full((1, *inside.shape), 0.5, device=device)
    table = _table(recipe, method)
    parts = [(model, f"the network of [networks.{table}]")]
    if isinstance(model, ProoD):
        parts = [(model.discriminator, "the discriminator"), (model.classifier, parts[0][1])]
    with deployed(model):
        for part, name in parts:
            try:
                output = part(image)
            except (RuntimeError, ValueError) as error:
                fault = f"{name} does not take images of {inside.name}, of shape {inside.shape}"
                raise ProodError(f"{fault}: {first_line(error)}") from None
    if method != "discriminator" and output.shape[1] < (classes := len(_class_names(inside))):
        raise ProodError(
            f"networks.{table}.classes = {output.shape[1]} is too few: {inside.name} has {classes}, leave it out"
        )
