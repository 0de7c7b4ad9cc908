"""Train a method by its recipe, which stands for image sets and a network, into a run's folder; or combine two runs."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack

from rich.console import Console
from torch import nn

from prood import processes
from prood.data import Images, ImageSet
from prood.errors import BadValue, Diverged
from prood.methods import Objective
from prood.models import ProoD, load, save
from prood.training.batches import Batches
from prood.training.joint import frozen_discriminator
from prood.training.loop import fit
from prood.training.networks import class_names, make_network, try_out
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


def held_back(recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """The images of both training sets, inside and outside, that the recipe keeps from training.

    They serve to choose a shift, a threshold or an epoch. Every method and every seed leaves the same ones out.
    """
    if not recipe.data.held_back:
        raise BadValue(f"recipe {recipe.name!r} holds no images back: say how many with data.held_back, and train")
    count = recipe.data.held_back  # the recipe's limit and seed have no say in which
    _, inside = recipe.data.open(recipe.data.inside).divided(count, seed=0)
    _, outside = recipe.data.open(recipe.data.outside, like=inside).divided(count, seed=0)
    return inside.load(), outside.load()


def images_to_choose_by(recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """Inside and outside, for choices: what the recipe holds back from training, else the splits `validation`."""
    if recipe.data.held_back:
        return held_back(recipe)
    inside = recipe.data.open(f"{recipe.data.inside.removesuffix(':train')}:validation").load()
    return inside, recipe.data.open(f"{recipe.data.outside.removesuffix(':train')}:validation", like=inside).load()


def training_set(name: str, recipe: Recipe, like: Images | None = None) -> Images:
    """The set to train on, without what is held back, or the part of that which the recipe's limit leaves."""
    found = recipe.data.open(name, like=like)
    if recipe.data.held_back:
        found, _ = found.divided(recipe.data.held_back, seed=0)
    return found.subset(recipe.data.limit, seed=0) if recipe.data.limit else found
