"""Train a method by its recipe, which stands for image sets and a network, into a run's folder; or combine two runs."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from rich.console import Console
from torch import nn

from prood import processes
from prood.data import Images, ImageSet, open_set
from prood.data.stored import joined
from prood.errors import BadValue, Collapsed, Diverged, Unsupported
from prood.methods import Method, Objective
from prood.models import ProoD, load, save
from prood.models.fitting import fitted
from prood.training.batches import Batches
from prood.training.estimating import Estimate, measure
from prood.training.joint import frozen_discriminator
from prood.training.loop import fit
from prood.training.networks import class_names, make_discriminator, make_network, try_out
from prood.training.options import TrainOptions
from prood.training.recipe import Recipe
from prood.training.run import Run


class How(TypedDict, total=False):
    """How a run is carried out; nothing of this changes its weights."""

    resume: bool
    device: str | None
    workers: int | None
    console: Console | None
    announce: bool


@dataclass(frozen=True)
class Prepared:
    """All that a training needs, made and tried out before anything is written."""

    options: TrainOptions
    declared: Method
    inside: Images
    model: nn.Module
    batches: Batches
    resolved: dict[str, Any]
    facts: dict[str, Any]
    used: dict[str, str]


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
    processes read the images of a set that is too big for memory. `announce=True` measures a few steps first, and says
    how long the training takes and how much memory. Start several processes with torchrun.
    """
    prepared = _prepare(method, recipe, discriminator, shift, how)
    options, declared, model, batches = prepared.options, prepared.declared, prepared.model, prepared.batches
    console = how.get("console") or Console()
    folder = Run(run)
    with folder.claimed() if processes.is_main() else nullcontext():  # by one of them, for all
        if processes.is_main():  # only now, when nothing is left that a typing error could break
            folder.open(prepared.resolved, resume=how.get("resume", False), defaults=recipe.defaults(method))
        processes.barrier()
        if folder.finished:
            model = load(folder.folder, device=batches.device)[0]
        else:
            if not folder.checkpoint.is_file():  # else it was prepared, and the checkpoint has it all
                declared.prepare(model, batches)
            if isinstance(declared, Objective):
                if how.get("announce"):
                    estimated = measure(model, declared, batches, options, start=folder.steps_done)
                    if processes.is_main():
                        console.print(str(estimated), highlight=False, soft_wrap=True)
                fit(model, declared, batches, options, folder, console=console, title=method)
            classes = None if declared.kind == "discriminator" else class_names(prepared.inside)
            facts = prepared.facts | {"classes": classes, "inside": prepared.inside.name}
            facts |= {"eps": getattr(declared, "eps", prepared.facts.get("eps"))}
            image = prepared.batches.augment.shape(prepared.inside.shape)
            facts |= {"image": list(image)} if declared.kind == "classifier" else {}
            facts |= {"data": prepared.used | prepared.facts.get("data", {}) | prepared.used}  # its own come first
            if processes.is_main():
                save(model.eval(), folder.model, recipe=prepared.resolved, seed=options.seed, **facts)
                folder.checkpoint.unlink(missing_ok=True)
            processes.barrier()
    metrics = folder.last_metrics()
    if metrics and isinstance(declared, Objective) and (complaint := declared.diagnose(metrics)):
        kind = Collapsed if declared.kind == "discriminator" else Diverged
        raise kind(f"{folder.folder} was trained to the end, but {complaint}")
    return model


def estimate(
    method: str,
    recipe: Recipe,
    *,
    discriminator: Path | str | None = None,
    shift: float | None = None,
    **how: Unpack[How],
) -> Estimate:
    """What `train` would take with these arguments: seconds a step and in all, and peak memory (`Estimate`).

    A few real steps of a few images are measured on the device; nothing is written. A joint model can be estimated
    before its discriminator is trained: without one, an untrained one of the recipe stands in.
    """
    prepared = _prepare(method, recipe, discriminator, shift, how, stand_in=True)
    if not isinstance(prepared.declared, Objective):
        raise Unsupported(f"method {method!r} has no training steps to measure: it is fitted to the images at once")
    return measure(prepared.model, prepared.declared, prepared.batches, prepared.options)


def _prepare(
    method: str,
    recipe: Recipe,
    discriminator: Path | str | None,
    shift: float | None,
    how: How,
    *,
    stand_in: bool = False,
) -> Prepared:
    """Open the sets, build the network and show it an image; with a `stand_in`, a discriminator may be missing."""
    target = processes.device(how.get("device"))
    processes.start(target)
    options, declared = recipe.options(method), recipe.method(method)
    stands_in = stand_in and declared.kind == "joint" and discriminator is None
    frozen, facts = (None, {}) if stands_in else frozen_discriminator(declared, discriminator, shift, target)
    inside = training_set(recipe.data.inside, recipe)
    outside = training_set(recipe.data.outside, recipe, like=inside) if declared.needs_outside else None
    used = {images.name: images.fingerprint() for images in (inside, outside) if images is not None}
    resolved: dict[str, Any] = recipe.resolved(method) | {"data": used}
    augment = recipe.augment_for(method)
    image = augment.shape(inside.shape)
    model = make_network(recipe, method, inside, outside)
    if stands_in:
        frozen = make_discriminator(recipe, inside, outside).requires_grad_(False).to(target)
    if frozen is not None:
        shift = recipe.shift if shift is None else shift
        resolved |= {"discriminator_run": str(discriminator), "shift": shift}
        model = ProoD(model, fitted(frozen, image), shift)
    model.to(target)
    noise, workers = declared.needs_noise, how.get("workers")
    batches = Batches(inside, outside, options, augment=augment, noise=noise, device=target, workers=workers)
    try_out(model, recipe, method, inside, target)
    return Prepared(options, declared, inside, model, batches, resolved, facts, used)


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
    """The set to train on, without what is held back, or the part of that which the recipe's limit leaves.

    An out-distribution, which is `like` the in-distribution, gets the recipe's patterns.
    """
    images = recipe.data.open(name, like=like)
    if recipe.data.held_back:
        images, _ = images.divided(recipe.data.held_back, seed=0)
    if recipe.data.limit:
        images = images.subset(recipe.data.limit, seed=0)
    if like is None or not recipe.data.patterns:
        return images
    return joined(images, open_set(f"made:{recipe.data.patterns}", shape=images.shape, split="train"))
