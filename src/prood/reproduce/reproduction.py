"""Every model of the paper's main table on CIFAR, from the images to published results, for one seed or several."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from prood import processes
from prood.atomic import write_text
from prood.errors import ProodError
from prood.evaluation import Results
from prood.evaluation import threshold as threshold_at
from prood.models import MODEL_FILE, ProoD, load, read_metadata, save
from prood.models.files import rounded
from prood.report import card, results_table
from prood.reproduce.jobs import Step, carry_out
from prood.reproduce.study import LINEAR, MODELS, OWN, PAPERS, SHIPPED, Study
from prood.studies.published import SHIFT_FILE, portable, read_one
from prood.training import combine, held_back

COMPACT = ("networks.classifier.name=compact", "train.epochs=100", "train.decay_from=6")
"""The shipped model has a smaller classifier, and for both sets the same schedule."""
QUICK = {
    "discriminator": ("train.epochs=70", "train.decay_from=35", "train.eps_ramp=35"),
    "prood": ("train.epochs=25",),
}
"""What `run_fast` trains by: shorter schedules, meant for five minutes on one GPU."""
TPR = 0.95


def needed(study: Study, run: str) -> tuple[str, ...]:
    """What a model is made of, and what its shift is chosen with."""
    if run in ("plain", "oe") or run.startswith("discriminator"):
        return ()
    discriminator = f"discriminator{PAPERS if run.endswith(PAPERS) else ''}"
    return (discriminator, "oe") if study.delta is None or run.startswith("prood-s") else (discriminator,)


def make(study: Study, run: str) -> None:
    """Train a model of the table, or put it together; what it needs is there."""
    base, ending = run.removesuffix(PAPERS), PAPERS if run.endswith(PAPERS) else ""
    discriminator = f"discriminator{ending}"
    if base in ("plain", "oe"):
        study.train(run, base, study.recipe())
    elif base == "discriminator":
        study.train(run, base, study.recipe("ibp" if ending else "fast"))
    elif base == "prood":
        study.train(run, base, study.recipe(), on=discriminator, shift=study.shift(discriminator))
    elif not (study.folder / run / MODEL_FILE).is_file():
        parts = (study.folder / name for name in ("oe", discriminator, run))
        shift = study.shift(discriminator)
        if processes.is_main():
            combine(*parts, shift=shift, resume=True)
        processes.barrier()


def run_fast(study: Study) -> Results:
    """Discriminator, joint model at the recipe's shift if none is set, and what is proved of it."""
    recipe = study.recipe()
    shift = recipe.shift if study.delta is None else study.delta
    for method, settings in QUICK.items():
        recipe = recipe.with_settings(method, settings)
    study.train("discriminator", "discriminator", recipe)
    study.train("prood", "prood", recipe, on="discriminator", shift=shift)
    results = study.evaluate("prood", eps=recipe.evaluate.eps[:1])
    study.console.print(results_table(results))
    return results


def ship(study: Study, results: Path) -> Path:
    """A joint model with a compact classifier in half precision, with threshold and card; the folder that holds it."""
    recipe = study.recipe("fast", *COMPACT)
    shift = study.shift("discriminator")
    study.train("compact", "prood", recipe, on="discriminator", shift=shift)
    run = study.folder / SHIPPED
    model, about = load(study.folder / "compact", device=processes.device(study.device))
    if not (run / MODEL_FILE).is_file():
        model = rounded(model)
        assert isinstance(model, ProoD)
        inside, _ = held_back(recipe)
        device = next(model.parameters()).device
        with torch.no_grad():
            rows = torch.split(torch.arange(len(inside)), 250)
            confidence = torch.cat([model.confidence(inside.floats(some).to(device)) for some in rows])
        run.mkdir(parents=True, exist_ok=True)  # an interruption may have left it behind
        for name in ("recipe.json", "metrics.jsonl"):
            shutil.copy(study.folder / "compact" / name, run / name)
        facts = {
            name: portable(getattr(about, name)) for name in ("classes", "eps", "recipe", "seed", "inside", "data")
        }
        threshold = threshold_at(confidence.cpu().numpy(), TPR)
        save(model, run / MODEL_FILE, half=True, threshold=threshold, tpr=TPR, **facts)
    study.evaluate(SHIPPED)
    file = study.publish(SHIPPED, "ProoD, linear bound, compact", results)
    write_text(run / f"{study.name}.md", card(read_one(file), read_metadata(run), name=study.name))
    return run


def choose(study: Study, discriminator: str, results: Path) -> None:
    """Choose the shift with this discriminator and publish the choice, unless that of another seed is there."""
    study.shift(discriminator)
    public = results / study.name / study.against / discriminator / SHIFT_FILE
    if processes.is_main() and (study.seed == 0 or not public.is_file()):  # tables take that of seed 0
        write_text(public, study.shift_file(discriminator).read_text(encoding="utf-8"))


def certify(study: Study, run: str, results: Path) -> None:
    study.evaluate(run)
    study.publish(run, MODELS[run], results)


def tighten(study: Study, run: str, results: Path, *, publish: bool) -> None:
    """By `crown`, at the radius that it was trained for."""
    study.evaluate(run, method="crown", eps=study.recipe().evaluate.eps[:1])
    if publish:
        study.publish(run, MODELS[run], results)


def attack(study: Study, run: str, results: Path, preset: str, images: int) -> None:
    study.evaluate(run, attacks=preset, limit=images)
    study.publish(run, MODELS[run], results)


def making(study: Study, wanted: Sequence[str], results: Path) -> list[Step]:
    """Training of these models, and before each what it needs."""
    found: dict[str, Step] = {}

    def add(run: str) -> None:
        parts = needed(study, run)
        for part in parts:
            add(part)
        if parts and study.delta is None:
            after = tuple(named("make", study, part) for part in parts)
            put("choose", parts[0], partial(choose, study, parts[0], results), after)
        if run != SHIPPED:
            put("make", run, partial(make, study, run), before(study, run))

    def put(what: str, run: str, action: partial[None], needs: tuple[str, ...]) -> None:
        name = named(what, study, run)
        found.setdefault(name, Step(name, action, needs))

    for run in wanted:
        add(run)
    return list(found.values())


def before(study: Study, run: str) -> tuple[str, ...]:
    """The steps that a model is made after."""
    parts = needed(study, run)
    chosen = (named("choose", study, parts[0]),) if parts and study.delta is None else ()
    return tuple(named("make", study, part) for part in parts) + chosen


def certifying(study: Study, wanted: Sequence[str], results: Path) -> list[Step]:
    return [
        Step(named("certify", study, run), partial(certify, study, run, results), (named("make", study, run),))
        for run in wanted
        if run != SHIPPED
    ]


def shipping(study: Study, wanted: Sequence[str], results: Path) -> list[Step]:
    step = Step(named("ship", study, SHIPPED), partial(ship, study, results), before(study, SHIPPED))
    return [step] if SHIPPED in wanted else []


def tightening(study: Study, wanted: Sequence[str], results: Path) -> list[Step]:
    """First the discriminator, asked for or not: its bounds serve the others."""
    linear = [run for run in LINEAR if run in wanted]
    found = []
    for run in dict.fromkeys(["discriminator", *linear]) if linear else ():
        needs = [named("certify" if run in wanted else "make", study, run)]
        needs += [] if run == "discriminator" else [named("tighten", study, "discriminator")]
        action = partial(tighten, study, run, results, publish=run in wanted)
        found.append(Step(named("tighten", study, run), action, tuple(needs)))
    return found


def attacking(study: Study, wanted: Sequence[str], results: Path, preset: str, images: int) -> list[Step]:
    found = []
    for run in wanted:
        if run != SHIPPED:
            last = named("tighten" if run in LINEAR else "certify", study, run)
            found.append(
                Step(named("attack", study, run), partial(attack, study, run, results, preset, images), (last,))
            )
    return found


def named(what: str, study: Study, run: str) -> str:
    return f"{what} {study.folder / run}"


def reproduce(
    *studies: Study,
    models: Sequence[str] = (),
    results: Path = Path("results"),
    attacks: str | None = "paper",
    attacked: int = 100,
    jobs: int = 1,
) -> None:
    """Train, choose the shifts, certify, ship, attack: all models, or these; each is published under `results`.

    Of several studies, which differ by their seeds say, all models are trained before any is certified, and so on.
    The attacks come last and see `attacked` images of each set: they take longer than everything else. `jobs` steps
    are made at a time, each in a process of its own.
    """
    known = (*OWN, SHIPPED)
    for model in models:
        if model not in known:
            raise ProodError(f"there is no model {model!r} to reproduce: choose among {', '.join(known)}")
    wanted = [run for run in known if not models or run in models]
    steps = [
        step
        for kind in (making, certifying, shipping, tightening)
        for study in studies
        for step in kind(study, wanted, results)
    ]
    if attacks:
        steps += [step for study in studies for step in attacking(study, wanted, results, attacks, attacked)]
    carry_out(steps, jobs=jobs, console=studies[0].console)
