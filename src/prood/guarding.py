"""The whole way from a classifier and two folders to a guarded model with its report: `prood guard`, `prood init`."""

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any, TypedDict, Unpack

from rich.console import Console

from prood import processes
from prood.atomic import locked, write_text
from prood.data.stored import Damage
from prood.detector import Detector
from prood.errors import BadValue, Diverged, Mismatch, NotFound
from prood.evaluation import read_results
from prood.evaluation.words import radius_text
from prood.models import WrapOptions, read_metadata
from prood.models.wrapped import trusting_code
from prood.pretrained import GUARD_FILE
from prood.report import card
from prood.studies import publish
from prood.studies.guarding.asked import Asked, look, set_name, sets
from prood.studies.guarding.checking import check_classifier
from prood.studies.guarding.parts import Parts, make_parts, read_parts
from prood.studies.guarding.plan import Estimate, in_what_is_left, plan
from prood.studies.guarding.study import CLASSIFIER, DISCRIMINATOR, GUARDED, lab_of, options_of, table_of
from prood.studies.guarding.verdict import Facts, facts_of
from prood.studies.published import read_one
from prood.studies.runner import Runner
from prood.training import Recipe, explain_recipe, load_recipe

RECIPE, FACTS, REPORT, CARD, IMAGES = GUARD_FILE, "guard.json", "report.html", "card.md", "images"


class Choices(TypedDict, total=False):
    """What may be said of a guard; what is not, is chosen."""

    eps: float | None
    size: str | None
    epochs: float | None
    accept: float | None
    provable: str | None
    minutes: float | None
    seed: int | None
    damaged: Damage | None
    classes: str | None
    options: WrapOptions


@dataclass(frozen=True, eq=False, repr=False)
class Guarded:
    """What `guard` made: the detector, ready to use, the facts about it, and the folder that has it all."""

    detector: Detector
    facts: Facts
    run: Path

    def __str__(self) -> str:
        return self.facts.paragraph()

    def __repr__(self) -> str:
        one = self.facts
        shares = f"accepts {one.accepted:.1%} inside, rejects {one.rejected:.1%} outside"
        return f"Guarded({str(self.run)!r}, {shares}, {one.provable:.1%} provably at eps={radius_text(one.eps)})"


def guard(
    classifier: str | Path | None = None,
    *,
    inside: str | Path | None = None,
    outside: str | Path | None = None,
    run: str | Path,
    recipe: str | Path | None = None,
    device: str | None = None,
    console: Console | None = None,
    **choices: Unpack[Choices],
) -> Guarded:
    """Guard a classifier with images from its domain (`inside`) and of other things (`outside`), in the folder `run`.

    The classifier is anything that `prood.models.open_classifier` opens; without one, one is trained. The folder inside
    has a subfolder for each class. Images are divided into parts; a discriminator is trained, combined with the
    classifier, calibrated and evaluated on images kept apart. A `recipe` that `init` wrote says all of this. What is
    in the folder already is not done again, so a run that was killed continues.
    """
    folder, shown = Path(run), console or Console(quiet=True)
    began = time.monotonic()
    with _trusting(choices), _opened(folder):
        begun = not (folder / RECIPE).is_file()
        chosen, estimate = _recipe(folder, recipe, _asked(classifier, inside, outside, choices), device, shown)
        parts = _parts(folder, chosen, shown)
        runner = lab_of(chosen, parts, folder, device=device, console=shown)
        try:
            _checked(runner, folder, begun=begun)
            if estimate is not None and choices.get("epochs") is None:
                left = 60 * table_of(chosen).minutes - (time.monotonic() - began) - estimate.after
                chosen = in_what_is_left(chosen, parts, left, processes.device(device))
                write_text(folder / RECIPE, explain_recipe(chosen) + "\n")
                runner = lab_of(_read(folder / RECIPE), parts, folder, device=device, console=shown)
            runner.carry_out([CLASSIFIER, DISCRIMINATOR, GUARDED])
        except Diverged as error:
            advice = "for prood guard: a smaller --eps, a smaller --size, or more --minutes, in another --run"
            raise Diverged(f"{error}; {advice}") from None
        return _finished(runner, folder, chosen)


def init(
    file: str | Path,
    classifier: str | Path | None = None,
    *,
    inside: str | Path,
    outside: str | Path | None = None,
    device: str | None = None,
    **choices: Unpack[Choices],
) -> str:
    """Write the recipe that `guard` would use, to be edited, and tell what it would take."""
    target = Path(file)
    if target.exists():
        raise BadValue(f"{target} already exists: choose another name")
    with _trusting(choices):
        asked = _asked(classifier, inside, outside, choices)
        recipe, estimate = plan(asked, look(asked), processes.device(device))
    write_text(target, explain_recipe(recipe) + "\n")
    return str(estimate)


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """The folder of a run, locked; a new one goes again if nothing was written into it."""
    if folder.exists() and not folder.is_dir():
        raise BadValue(f"{folder} is a file: choose another folder for the run")
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / "guard", busy=f"another process works in {folder}: wait for it, or end it"):
            for half in folder.rglob(".*.part"):  # what a kill left half written: nobody else works here now
                half.unlink(missing_ok=True)
            yield
    finally:
        if new:
            with suppress(OSError):
                folder.rmdir()


def _asked(
    classifier: str | Path | None, inside: str | Path | None, outside: str | Path | None, choices: Choices
) -> Asked:
    sets = [None if one is None else set_name(str(one)) for one in (inside, outside)]
    asked = Asked(sets[0] or "", sets[1], None if classifier is None else str(classifier), **choices)
    return replace(asked, options=replace(asked.options, trust_code=False))  # which no recipe says


def _checked(runner: Runner, folder: Path, *, begun: bool) -> None:
    """Refuse a classifier that does not fit; what was `begun` just now goes, so that the folder takes a better one."""
    try:
        check_classifier(runner)
    except Mismatch:
        if begun:
            (folder / RECIPE).unlink()
            for part in (IMAGES, CLASSIFIER):
                rmtree(folder / part, ignore_errors=True)
        raise


def _trusting(choices: Choices) -> AbstractContextManager[None]:
    return trusting_code(choices.get("options", WrapOptions()).trust_code)


def _recipe(
    folder: Path, given: str | Path | None, asked: Asked, device: str | None, console: Console
) -> tuple[Recipe, Estimate | None]:
    """The folder's, if it fits what is asked for now; or the one that is given; or a new one, with its time."""
    file, estimate = folder / RECIPE, None
    if file.is_file():
        before = _read(file)
        changed = _changed(asked, before)
        if given is not None and explain_recipe(_read(given)) != explain_recipe(before):
            changed.append("recipe")
        if changed:
            fault = f"{folder} was begun with other settings ({', '.join(changed)})"
            raise Mismatch(f"{fault}: continue with the same ones, or choose another folder")
        console.print(f"continuing in {folder}, by {file}", highlight=False, soft_wrap=True)
        return before, None
    if given is not None:
        recipe = _read(given)
        if asked != Asked(""):
            raise BadValue("--recipe excludes the other options: leave them out, and edit the recipe")
        table_of(recipe)
    else:
        if not asked.inside:
            raise NotFound(f"there is nothing to continue in {folder}: name the images inside with --inside")
        found = look(asked)
        console.print(str(found), highlight=False, markup=False, soft_wrap=True)
        if found.outside is None:
            warning = (
                "without --outside, patterns, noise and pieces of your own images stand in for other things: expect "
            )
            console.print(warning + "far fewer photographs to be rejected, and hardly any provably", soft_wrap=True)
        recipe, estimate = plan(asked, found, processes.device(device))
        console.print(f"plan: {estimate}", highlight=False, markup=False, soft_wrap=True)
    write_text(file, explain_recipe(recipe) + "\n")
    return _read(file), estimate  # as it will be read when this is continued


def _read(file: str | Path) -> Recipe:
    """A run's folder, which may come from anywhere, runs no code."""
    return load_recipe(str(file), code=False)


def _changed(asked: Asked, before: Recipe) -> list[str]:
    """What is said now, and was not so before."""
    table, trained = table_of(before), before.resolved("discriminator")
    known: dict[str, Any] = {
        "inside": before.data.inside,
        "outside": before.data.outside,
        "classifier": table.classifier,
        "classes": table.classes,
        "eps": trained["train"]["eps"],
        "size": trained["discriminator"]["size"],
        "epochs": trained["train"]["epochs"],
        "damaged": before.data.damaged,
        **{name: getattr(table, name) for name in ("accept", "provable", "minutes", "seed")},
    }
    changed = [name for name, value in known.items() if getattr(asked, name) not in (None, "", value)]
    said, options = asked.options, options_of(table)
    known = {name: getattr(options, name) for name in ("weights", "mean", "std", "output", "probabilities")}
    known["joint_image"] = table.image
    return changed + [name for name, value in known.items() if getattr(said, name) not in (None, value)]


def _parts(folder: Path, recipe: Recipe, console: Console) -> Parts:
    images, table = folder / IMAGES, table_of(recipe)
    parts = read_parts(images)
    if parts is None:
        outside = None if recipe.data.outside.startswith("made:") else recipe.data.outside
        asked = Asked(recipe.data.inside, outside, damaged=recipe.data.damaged)
        found = sets(asked, (table.image[0], table.image[1], table.image[2]))
        parts = make_parts(images, found.inside, found.outside, table)
    console.print(f"parts: {parts}, by seed {table.seed}", highlight=False, markup=False, soft_wrap=True)
    return parts


def _finished(runner: Runner, folder: Path, recipe: Recipe) -> Guarded:
    """The report, the card and the facts, from what was measured."""
    generated = recipe.data.outside.startswith("made:")
    facts = facts_of(runner, folder, made=generated)
    results = read_results(folder)
    assert results is not None
    write_text(folder / FACTS, json.dumps(asdict(facts) | {"verdict": facts.paragraph()}, indent=1) + "\n")
    results.report(folder / REPORT)
    published = folder / "published.json"
    publish(folder, published, command="prood guard", title="Guarded", outside=runner.against)
    text = card(read_one(published), read_metadata(folder), name=str(folder))
    write_text(folder / CARD, f"{text}\n## Verdict\n\n{facts.paragraph()}\n")
    return Guarded(Detector.load(folder), facts, folder)


__all__ = ["Choices", "Guarded", "guard", "init"]
