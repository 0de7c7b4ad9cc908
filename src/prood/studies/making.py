"""What is done about a node of a study: it is trained, combined or rounded, given a shift, evaluated and published."""

import json
import shutil
import time
from dataclasses import asdict, replace
from typing import Any

import torch

from prood import data, evaluation, processes
from prood.atomic import write_text
from prood.data import ImageSet
from prood.detector import Detector
from prood.detector.files import CALIBRATION_FILE, keep
from prood.errors import ProodError
from prood.evaluation import Results, evaluate_run
from prood.evaluation.measuring import images_at_once
from prood.models import MODEL_FILE, Discriminator, ProoD, build, fingerprint, load, save
from prood.models.files import rounded
from prood.models.fitting import fitted
from prood.studies import published, publishing
from prood.studies.gating import at_point
from prood.studies.graph import Measure, Node
from prood.studies.pairs import Pairs, pairs_of
from prood.studies.shift import choose_shift, sweep
from prood.studies.site import Site
from prood.training import Run, combine, held_back, train
from prood.training.joint import open_into

SHIFTS = tuple(step / 4 for step in range(25))
"""From 0 to 6, as in the paper. It trains for each and so has whole numbers only; here one pass serves all of them."""
TOLERANCE = 0.001
"""A shift is good enough if it costs less AUC than this, about what two trainings of OE differ by."""
RULE = (
    f"the highest GAUC among the shifts that cost less than {100 * TOLERANCE:g} points of {{by}}'s AUC, "
    "else the highest AUC; on held-out images"
)
ACCEPT = 0.95
"""The share of the in-distribution that a shipped model accepts."""


def make(site: Site, node: Node, seed: int | None) -> None:
    """Make a node from its parts, which exist. A finished node stays as it is."""
    run, began, new = site.place(node.name, seed), time.monotonic(), not site.has(node.name, seed)
    if node.method is not None:
        joint: dict[str, Any] = {}
        if node.discriminator is not None:
            joint = {"discriminator": site.place(node.discriminator, seed), "shift": shift_of(site, node, seed)}
        recipe = site.recipe_of(node, seed)
        train(node.method, recipe, run, resume=True, device=site.device, console=site.console, **joint)
    elif not site.has(node.name, seed) and processes.is_main():
        if node.rounded is not None:
            _round(site, node, node.rounded, seed)
        elif node.opened is not None:
            open_into(
                run, node.opened.name, node.opened.image, options=node.opened.options, classes=node.opened.classes
            )
        elif node.built is not None:
            _build(site, node, seed)
        else:
            f, g = (site.place(str(part), seed) for part in (node.classifier, node.discriminator))
            combine(f, g, run, shift=shift_of(site, node, seed), resume=True)
    if node.discriminator is not None and site.study.calibration and processes.is_main():
        _calibrate(site, node, seed, site.study.calibration)
    processes.barrier()
    if node.method is not None and new:
        seconds = time.monotonic() - began
        site.console.print(f"{node.name:<14} trained in {seconds:.0f} s → {run}", markup=False, soft_wrap=True)


def _build(site: Site, node: Node, seed: int | None) -> None:
    """A classifier whose architecture brings its weights, as a run."""
    inside = site.inside()
    assert inside.classes is not None
    model = build({"classes": len(inside.classes), **(node.built or {})}).eval()
    resolved = {"method": "build", "classifier": node.built, "evaluate": asdict(site.recipe.evaluate)}
    run = Run(site.place(node.name, seed))
    run.open(resolved, resume=False, at_once=True)
    named = site.recipe.data.inside  # as of what is trained: evaluations look for its test set
    facts: dict[str, Any] = {"classes": list(inside.classes), "image": list(inside.shape)}
    facts["inside"] = named if ":" in named else f"{named}:train"
    save(model, run.model, recipe=resolved, **facts)


def _round(site: Site, node: Node, part: str, seed: int | None) -> None:
    """A model in half precision: a discriminator as it takes the study's images, a joint model with the node's gate.

    The joint model gets the threshold that accepts 95% of held-out images.
    """
    before, run = site.place(part, seed), site.place(node.name, seed)
    model, about = load(before, device=processes.device(site.device))
    model = rounded(model)
    run.mkdir(parents=True, exist_ok=True)  # an interruption may have left it behind
    for name in ("recipe.json", "metrics.jsonl"):
        if (before / name).is_file():  # what was combined has no metrics
            shutil.copy(before / name, run / name)
    kept = ("classes", "eps", "recipe", "seed", "inside", "data")
    facts = {name: publishing.portable(getattr(about, name)) for name in kept}
    if isinstance(model, Discriminator):
        save(fitted(model, site.inside().shape), run / MODEL_FILE, half=True, **facts)
        return
    assert isinstance(model, ProoD)
    made = site.study.node(part)
    inside, outside = site.held_back() if made.method is None else held_back(site.recipe_of(made, seed))
    provable = 0.0
    if node.gate is not None:
        model, provable = at_point(model, _samples(site, model, inside, outside), node.gate)
    device = next(model.parameters()).device
    with torch.no_grad():
        rows = torch.split(torch.arange(len(inside)), 250)
        confidence = torch.cat([model.confidence(inside.floats(some).to(device)) for some in rows])
    threshold = evaluation.threshold(confidence.cpu().numpy(), ACCEPT)
    save(model, run / MODEL_FILE, half=True, threshold=threshold, accept=ACCEPT, provable=provable, **facts)


def _samples(site: Site, model: ProoD, inside: ImageSet, outside: ImageSet) -> list[Pairs]:
    """What a gate is fitted on: held-out images, and of each broad set that can be read twice as many."""
    sets = {outside.name: outside}
    for name in site.study.broad:
        try:
            sets[name] = data.open_set(name, like=inside).subset(2 * len(inside), 0).load()
        except ProodError as error:
            site.console.print(f"the gate is fitted without {name}: {error}", markup=False, soft_wrap=True)
    device = model.shift.device
    return list(pairs_of(model.classifier, model.discriminator, inside, sets, site.eps, device=device).values())


def _calibrate(site: Site, node: Node, seed: int | None, images: str) -> None:
    """Give a joint model its threshold, and put the calibration beside it for p-values."""
    folder = site.place(node.name, seed)
    model, about = load(folder)
    if about.threshold is None or not (folder / CALIBRATION_FILE).is_file():
        detector, asked = Detector(model, device=processes.device(site.device)), site.study.asked
        samples = _samples(site, detector.joint(), *site.held_back()) if asked.fitted else []
        schedule = asked.schedule(samples, detector.shift)
        inside = data.load(images, shape=detector.shape)
        batch = images_at_once(detector.shape)
        detector.calibrate(inside, accept=asked.accept, level=asked.level, provable=schedule, batch=batch)
        keep(detector, folder, about)
        about = load(folder)[1]
    site.console.print(f"{node.name:<14} accepts {about.accept:.0%} of {images}: confidence ≥ {about.threshold:.4f}")


# The shift


def chooses(site: Site, discriminator: str) -> bool:
    """Whether the shift of joint models with this discriminator is chosen by models of this site."""
    if site.study.shift is not None or site.study.shift_by is None:
        return False
    return site.own_shifts or site.has(discriminator, site.home) or not site.public_shift(discriminator).is_file()


def shift_of(site: Site, node: Node, seed: int | None) -> float:
    """Δ of a joint model: the study's, or the one chosen for its discriminator, or the recipe's."""
    if site.study.shift is not None:
        return site.study.shift
    if site.study.shift_by is None:
        return site.recipe.shift
    assert node.discriminator is not None
    file = site.public_shift(node.discriminator)
    if chooses(site, node.discriminator):
        file = site.shift_file(node.discriminator, seed if site.own_shifts else site.home)
    return float(published.read_json(file)["chosen"])


def choose(site: Site, discriminator: str, seed: int | None) -> None:
    """Choose among joint models of one classifier with every shift, as `RULE` says, and publish the choice.

    The paper trains a classifier for each. But two trainings differ in AUC by more than two shifts do, and so here OE
    is compared with itself: what g adds to it, or costs.
    """
    file, by = site.shift_file(discriminator, seed), site.study.shift_by
    assert by is not None
    if not still_holds(site, discriminator, seed):
        device = processes.device(site.device)
        inside, outside = site.held_back()
        classifier, about = load(site.place(by, seed), device=device)
        # A user's own models are not published: their accuracy is not needed, and costs a pass.
        inside = replace(inside, labels=None) if site.study.private else inside.numbered_as(about.classes)
        certified, _ = load(site.place(discriminator, seed), device=device)
        assert isinstance(certified, Discriminator)
        certified = fitted(certified, inside.shape)
        baseline, candidates = sweep(classifier, certified, inside, outside, site.eps, SHIFTS, device=device)
        content = {
            "inside": site.name,
            "outside": site.against,
            "seed": seed,
            "discriminator": discriminator,
            "classifier": by,
            "baseline": {"auc": baseline, "accuracy": candidates[0].accuracy},
            "candidates": [asdict(candidate) for candidate in candidates],
            "chosen": choose_shift(candidates, baseline, tolerance=TOLERANCE).shift,
            "rule": RULE.format(by=site.study.node(by).title),
            "images": len(outside),
            "weights": {by: fingerprint(classifier), discriminator: fingerprint(certified)},
        }
        if processes.is_main():
            write_text(file, json.dumps(content, indent=1) + "\n")
    public, text = site.public_shift(discriminator), file.read_text(encoding="utf-8") if file.is_file() else ""
    news = seed == 0 or not public.is_file()  # tables take seed 0
    if processes.is_main() and news and not site.study.private:
        write_text(public, text)
    processes.barrier()


def still_holds(site: Site, discriminator: str, seed: int | None) -> bool:
    """Whether a choice is there that was made among these shifts, with the networks that are here."""
    file = site.shift_file(discriminator, seed)
    if not file.is_file():
        return False
    content = published.read_json(file)
    shifts, weights = tuple(one.get("shift") for one in content.get("candidates", ())), content.get("weights", {})
    runs = [run for run in (site.study.shift_by, discriminator) if run is not None and site.has(run, seed)]
    return shifts == SHIFTS and all(weights.get(run) == site.weights(run, seed) for run in runs)


# What is measured


def evaluate(site: Site, node: Node, seed: int | None, measure: Measure) -> Results:
    """Evaluate a node into its folder, or all of a study into one; existing results are reused."""
    study, planned = site.study, site.recipe.evaluate
    radii = list(measure.eps or site.radii)
    attacks, limit = (study.attacks, study.attacked) if measure.attacked else (None, study.limit)
    bound = measure.bound or study.bound or site.recipe.evaluate_for(node.method).bound
    options: dict[str, Any] = {"eps": radii[:1] if measure.first else radii, "attacks": attacks, "bound": bound}
    options |= {"limit": planned.limit if limit is None else limit, "device": site.device, "console": site.console}
    run = site.place(node.name, seed)
    if study.together:
        model, _ = load(run)
        return evaluation.evaluate(model, **site.sets, name=node.title, folder=site.folder, **options)
    compile = attacks in ("paper", "strong") and processes.device(site.device).type == "cuda"  # pays there
    return evaluate_run(run, inside=site.inside_name, outside=planned.outside, compile=compile, **options)


def publish(site: Site, node: Node, seed: int | None) -> None:
    """Write what a run's folder says into the published file, if that does not say it yet."""
    if processes.is_main():  # it alone looks whether there is news: it is the one that writes
        run, before = site.place(node.name, seed), site.read(node.name, seed)
        if before is None or before.weights != site.weights(node.name, seed) or publishing.has_news(run, before):
            file = site.file(node.name, seed)
            publishing.publish(run, file, command=site.command, title=node.title, outside=site.against, seed=seed)
    processes.barrier()
