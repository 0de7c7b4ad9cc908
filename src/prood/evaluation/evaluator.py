"""Every number of the paper's tables, for any model that has a score."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from prood import processes
from prood.atomic import locked
from prood.attacks import Attack, Compiled, preset
from prood.bounds import Method
from prood.data import ImageSet
from prood.errors import ProodError, first_line
from prood.evaluation.bench import Bench, Measured
from prood.evaluation.metrics import auc, fpr, intervals
from prood.evaluation.progress import Bar
from prood.evaluation.results import Evaluation, Results, Scores, identity, read_results
from prood.evaluation.stopping import Stop, goals
from prood.models import Score, fingerprint, score_of

PIXELS = 2**23
"""At most so many values in a batch of images, and never more than 250 images: an attack keeps dozens of copies."""


@torch.no_grad()
def evaluate(
    model: nn.Module | Score,
    *,
    inside: ImageSet,
    outside: Mapping[str, ImageSet],
    eps: float | Iterable[float],
    attacks: str | Attack | None = None,
    stop: Stop = "auc",
    method: Method = "best",
    limit: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    compile: bool = False,
    device: str | torch.device = "cpu",
    name: str = "model",
    folder: Path | str | None = None,
    reuse: Results | None = None,
    console: Console | None = None,
) -> Results:
    """Compare the scores of in-distribution images with those of each out-distribution, at each radius `eps`.

    AUC and FPR take the images as they are; GAUC and GFPR the certified upper bounds over the ℓ∞ balls of radius eps,
    by this `method` (a model without a certificate has 0 and 1); AAUC and AFPR the highest scores that `attacks` finds
    in them: a preset ("fast", "paper", "strong") or an attack. `stop` says when the search for an image may end, see
    `stopping.goals`.

    `limit` takes a seeded choice of so many images of each out-distribution; the in-distribution is always used whole.
    With a `folder`, every evaluation is added to its results.json as soon as it is made, and what is there already is
    not made again. Of a joint model, `reuse` may hold evaluations of its discriminator: bounds of g over the same balls
    by the same method are taken from there, and only the shift is added.

    `compile` is for attacks on a GPU: the passes of a search are compiled first, which takes half a minute.

    A progress bar is shown on `console`. Under torchrun each process takes a part of the images.
    The model is moved to `device`, and stays in eval mode there.
    """
    score = model if isinstance(model, Score) else score_of(model)
    score.model.to(device).eval()
    score.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster convolutions
    attack = preset(attacks) if isinstance(attacks, str) else attacks
    folder = None if folder is None else Path(folder)
    batch = max(1, min(250, PIXELS // math.prod(inside.shape))) if batch is None else batch
    if batch < 1:
        raise ProodError(f"a batch of {batch} images is empty: choose at least 1")
    goals(stop, torch.zeros(1), torch.zeros(1))  # a wrong name is said now, not after hours
    if compile and torch.device(device).type != "cuda":
        raise ProodError("attacks are compiled for a GPU only: leave out --compile, or choose --device cuda")
    searched = Compiled(score) if compile and attack else None
    bench = Bench(score, torch.device(device), batch, attack, stop, seed, folder, method, searched)

    common: dict[str, Any] = {
        "model": name,
        "inside": inside.name,
        "certificate": f"{method}, float32",
        "attacks": attacks if isinstance(attacks, str | None) else repr(attacks),
        "stop": stop if attack else None,
        "limit": limit,
        "seed": seed,
    }
    prints = {"model": fingerprint(score.model), "inside": inside.fingerprint()}
    prints |= {"attack": identity(attack=repr(attack))} if attack else {}  # a preset may be another one day
    radii = _radii(eps)
    plan: list[tuple[ImageSet, dict[str, Any]]] = []
    for title, images in outside.items():
        if images.shape != inside.shape:
            raise ProodError(f"{title} has images of shape {images.shape}, but {inside.name} of shape {inside.shape}")
        chosen = images if limit is None else images.subset(limit, seed)
        settings = common | {"outside": title, "fingerprints": prints | {"outside": chosen.fingerprint()}}
        plan += [(chosen, settings | {"eps": radius}) for radius in radii]

    results = _usable(folder) if folder else Results()
    missing = [(images, settings) for images, settings in plan if results.find(identity(**settings)) is None]
    if missing:
        _check_shape(score, inside, device)
        reference = Reference.of(bench, inside)
    with Bar(console, name, sum(len(images) for images, _ in missing)) as bar:
        for images, settings in missing:
            bar.begins(f"{settings['outside']}, ε = {settings['eps']:g}")
            began = time.monotonic()
            known = _known(reuse, score, settings)
            measured = bench.confront(images, settings["eps"], reference.scores, bar.reaches, known)
            made = _evaluation(settings, reference, images, measured)
            seconds = round(time.monotonic() - began, 3)
            made = replace(made, seconds=seconds, machine=machine(bench.device))
            results = results.plus(made)
            if folder and processes.is_main():
                made.save_scores(folder)
                _store(folder, [made])
    found = [results.find(identity(**settings)) for _, settings in plan]
    asked = [one for one in found if one is not None]
    if folder and processes.is_main():
        with suppress(OSError):  # what is there is also answered from a folder that may only be read
            _store(folder, asked)
    return Results(tuple(asked))


def _usable(folder: Path) -> Results:
    """What is there, without evaluations whose scores cannot be read any more: these are made again when asked for."""
    found = read_results(folder, whole=False) or Results()
    return Results(tuple(one for one in found if one.scores is not None or not (folder / one.scores_file).is_file()))


def _store(folder: Path, asked: Sequence[Evaluation]) -> None:
    """Put these at the end of the folder's results, where reports look; others may write there at the same time."""
    with locked(folder / "results.json"):
        there = read_results(folder, whole=False) or Results()
        if [one.identity for one in there][-len(asked) :] != [one.identity for one in asked]:
            there.ending_with(*asked).save(folder)


@dataclass(frozen=True)
class Reference:
    """The in-distribution: its scores, and how the model classifies it, if it does."""

    scores: Tensor
    accuracy: float | None
    classes: int | None

    @staticmethod
    def of(bench: Bench, inside: ImageSet) -> Reference:
        logits = bench.score.logits(inside.floats([0]).to(bench.device))
        classes = None if logits is None else logits.shape[1]
        labels = None if classes is None else inside.labels_of(classes)
        scores = bench.over(inside, bench.score)
        if labels is None:
            return Reference(scores, None, classes)

        def guess(images: Tensor) -> Tensor:
            logits = bench.score.logits(images)
            assert logits is not None
            return logits.argmax(1)

        right = bench.over(inside, guess).long() == labels
        return Reference(scores, right.double().mean().item(), classes)


def _evaluation(settings: dict[str, Any], reference: Reference, images: ImageSet, found: Measured) -> Evaluation:
    """The metrics of what was measured, and the measurements themselves."""
    attacked = found.attacked if settings["attacks"] else None
    kinds = {"": found.clean, "g": found.certified} | ({} if attacked is None else {"a": attacked})
    values: dict[str, Any] = {}
    for letter, outside in kinds.items():
        values |= {f"{letter}auc": auc(reference.scores, outside), f"{letter}fpr95": fpr(reference.scores, outside)}
    ends = intervals(reference.scores, kinds, seed=settings["seed"])
    named = {"auc": "auc", "fpr": "fpr95"}
    between = {letter + name: list(ends[metric][letter]) for letter in kinds for metric, name in named.items()}
    attack = {
        "forward": found.forward,
        "backward": found.backward,
        "settled": found.settled.mean().item(),
        "raised": (found.attacked > found.clean).double().mean().item(),
        "by": {name: count / len(images) for name, count in found.found_by.items()},
        "seconds": round(found.seconds, 3),
    }
    scores = Scores(
        inside=reference.scores.numpy(),
        clean=found.clean.numpy(),
        certified=found.certified.numpy(),
        attacked=None if attacked is None else attacked.numpy(),
        gallery=found.gallery.numpy(),
        gallery_clean=images.images[found.gallery].cpu().numpy(),
        gallery_attacked=found.shown,
    )
    return Evaluation(
        **settings,
        **values,
        images=len(images),
        accuracy=reference.accuracy,
        classes=reference.classes,
        intervals=between,
        attack={} if attacked is None else attack,
        scores=scores,
    )


def _known(reuse: Results | None, score: Score, settings: dict[str, Any]) -> Tensor | None:
    """The bounds of the score's part on these images, if they are among what was evaluated before."""
    part = score.part() if reuse else None
    if reuse is None or part is None:
        return None
    wanted = (settings["eps"], settings["certificate"], fingerprint(part.model), settings["fingerprints"]["outside"])
    for one in reuse:
        found = (one.eps, one.certificate, one.fingerprints.get("model"), one.fingerprints.get("outside"))
        if found == wanted and one.scores is not None:
            return torch.from_numpy(one.scores.certified)
    return None


def _radii(eps: float | Iterable[float]) -> list[float]:
    radii = [float(radius) for radius in (eps if isinstance(eps, Iterable) else [eps])]
    wrong = [radius for radius in radii if not (math.isfinite(radius) and radius >= 0)]
    if wrong or not radii:
        raise ProodError(f"eps is a radius, or several, none of them negative: {wrong[0] if wrong else 'none given'}")
    return list(dict.fromkeys(radii))


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


@torch.no_grad()
def _check_shape(score: Score, inside: ImageSet, device: str | torch.device) -> None:
    """Whether the model takes images of this shape is seen by one grey image of it."""
    try:
        score(torch.full((1, *inside.shape), 0.5, device=device))
    except (RuntimeError, ValueError) as error:
        fault = f"the model does not take images of {inside.name}, of shape {inside.shape}"
        raise ProodError(f"{fault}: {first_line(error)}") from None
