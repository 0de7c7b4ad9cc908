"""Train a method by its recipe into a run's folder."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypedDict, Unpack

from rich.console import Console
from torch import nn

from prood import processes
from prood.errors import Diverged
from prood.methods import Objective
from prood.models import ProoD, load, save
from prood.training.batches import Batches
from prood.training.joint import frozen_discriminator
from prood.training.loop import fit
from prood.training.networks import make_network, try_out
from prood.training.recipe import Recipe
from prood.training.run import Run
from prood.training.sets import class_names, training_set


class How(TypedDict, total=False):
    """How a run is carried out; nothing of this changes its weights."""

    resume: bool
    """Continue the run that is in the folder, if there is one."""
    device: str | None
    """By default a GPU if there is one, else the CPU."""
    workers: int | None
    """Processes that read the images of a set that is too big for memory."""
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
    batches = Batches(
        inside,
        outside,
        options,
        augment=recipe.augment_for(method),
        noise=declared.needs_noise,
        device=target,
        workers=how.get("workers"),
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
            facts |= {
                "classes": None if declared.kind == "discriminator" else class_names(inside),
                "eps": getattr(declared, "eps", facts.get("eps")),
                "inside": inside.name,
                "data": used | facts.get("data", {}) | used,  # its own come first
            }
            if processes.is_main():
                save(model.eval(), folder.model, recipe=resolved, seed=options.seed, **facts)
                folder.checkpoint.unlink(missing_ok=True)
            processes.barrier()
    metrics = folder.last_metrics()
    if metrics and isinstance(declared, Objective) and (complaint := declared.diagnose(metrics)):
        raise Diverged(f"{folder.folder} was trained to the end, but {complaint}")
    return model
