"""A committee of trained discriminators, as the run of a discriminator (docs/verdict.md)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from prood import data, processes
from prood.errors import BadValue, Mismatch
from prood.evaluation import EvaluateOptions
from prood.evaluation.measuring import Evaluator
from prood.models import Committee, Discriminator, InLogit, Metadata, load, save
from prood.models.committee import committee_of, shares_of
from prood.training import Run


def make_committee(
    discriminators: Sequence[Path | str],
    run: Path | str,
    *,
    inside: str,
    shares: Sequence[float] | None = None,
    device: str | None = None,
) -> Committee:
    """Put the discriminators of these runs on one scale, by in-distribution images, and write the committee into `run`.

    No member was trained on these images. From then on the folder is a discriminator's like every other.
    """
    place = torch.device(processes.device(device))
    if len(discriminators) < 2:
        raise BadValue(
            f"a committee needs two or more discriminators, not {len(discriminators)}: repeat --discriminator"
        )
    loaded = [_discriminator(path) for path in discriminators]
    members, abouts = [model.to(place) for model, _ in loaded], [about for _, about in loaded]
    weights = shares_of(len(members), shares)  # a mistake, before the images are read
    for path, member in zip(discriminators, members, strict=True):
        if member.image != members[0].image:
            raise Mismatch(f"{path} takes images of shape {member.image}, and {discriminators[0]} {members[0].image}")
    images = data.load(inside, shape=members[0].image)
    if images.shape != members[0].image:
        raise Mismatch(f"{inside} has images of shape {images.shape}, and the members take {members[0].image}")
    options = EvaluateOptions(device=place, batch=250)
    with torch.no_grad():
        seen = [Evaluator(known, options).over(images, known).numpy() for known in map(InLogit, members)]
    committee = committee_of(members, seen, weights).eval()
    resolved: dict[str, Any] = {
        "method": "committee",
        "discriminator_runs": [str(path) for path in discriminators],
        "shares": weights,
        "images": inside,
        "evaluate": (abouts[0].recipe or {}).get("evaluate", {}),
    }
    folder = Run(run)
    folder.open(resolved, resume=False, at_once=True)
    stated = [about.eps for about in abouts if about.eps is not None]
    used = {name: mark for about in abouts for name, mark in about.data.items()} | {images.name: images.fingerprint()}
    facts: dict[str, Any] = {"eps": min(stated, default=None), "inside": abouts[0].inside, "data": used}
    save(committee, folder.model, recipe=resolved, **facts)
    return committee


def _discriminator(path: Path | str) -> tuple[Discriminator, Metadata]:
    model, about = load(path)
    if not isinstance(model, Discriminator):
        raise Mismatch(f"{path} holds no discriminator: train one with 'prood train discriminator'")
    if isinstance(model, Committee):
        raise Mismatch(f"{path} is a committee already: name its members, each with --discriminator")
    return model, about
