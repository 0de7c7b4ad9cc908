"""Runs and image sets by name: what the command line evaluates and reports."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from prood import data, processes
from prood.data.public.openood import benchmark as known_benchmark
from prood.errors import Mismatch, NotFound, ProodError
from prood.evaluation.budget import Budget
from prood.evaluation.evaluator import evaluate
from prood.evaluation.options import LIMIT, EvaluateOptions
from prood.evaluation.results import Results, read_results
from prood.evaluation.sets import fitting_of, part_of
from prood.models import load, model_path
from prood.models.confidence import renamed
from prood.models.files import title


def evaluate_run(
    run: Path | str,
    *,
    outside: Sequence[str] | None = None,
    inside: str | None = None,
    eps: Sequence[float] | None = None,
    options: EvaluateOptions | None = None,
    budget: Budget | None = None,
    benchmark: str | None = None,
    **keywords: Any,
) -> Results:
    """Evaluate the model of a run's folder into its results.json; see `evaluate`.

    A model that comes with Prood has no folder: its results go into runs/shipped/NAME. `folder` is another place.
    What is not given is what the run's recipe says in its table [evaluate]. Where that is silent, `inside` is the test
    split of what the model was trained on, `eps` the radius it was trained for, `limit` 1,000 images (0: all), and the
    `bound` "best". The `attacks` are "fast" by default.

    `benchmark` is the name of one of OpenOOD's, such as "openood-cifar10": its sets are taken, whole, at radius 0 and
    without attacks, unless something else is asked for.

    Where a `budget` does not allow to attack all images, there are two evaluations of each set and radius: one of all
    that are certified, without attacks, and one of as many as are attacked.
    """
    run = Path(run)
    options = replace(options or EvaluateOptions(attacks=None if benchmark else "fast"), **renamed(keywords))
    folder = options.folder or _place(run)
    target = processes.device(None if options.device is None else str(options.device))
    processes.start(target)
    model, about = load(run, device=target)
    planned = renamed((about.recipe or {}).get("evaluate", {}))
    if benchmark is not None:
        planned, lists = {**planned, "limit": 0}, known_benchmark(benchmark)
        inside, outside, eps = inside or lists.inside, outside or lists.outside, eps or [0.0]
    outside = outside or planned.get("outside")
    if not outside:
        raise NotFound(f"the recipe of {run} names no test out-distributions: name some with --outside")
    eps = eps or planned.get("eps") or ([about.eps] if about.eps is not None else None)
    if eps is None:
        raise NotFound(f"{run} was not trained for a radius: give one with --eps")
    inside = inside or counterpart(about.inside)
    if inside is None:
        raise NotFound(f"{run} does not say which test set belongs to its in-distribution: name it with --inside")
    reuse, place = options.reuse, (about.recipe or {}).get("discriminator_run")
    if not reuse and place:  # what was evaluated of the discriminator; where that is damaged, it is computed again
        with suppress(ProodError):
            reuse = read_results(place)
    limit = planned.get("limit", LIMIT) if options.limit is None else options.limit  # 0 is none
    options = replace(options, limit=limit or None, bound=options.bound or planned.get("bound"), reuse=reuse)
    options = replace(options, device=target, name=run.resolve().name, folder=folder)
    options = replace(options, threshold=about.threshold if options.threshold is None else options.threshold)
    options = replace(options, trained_on=tuple(about.data) or None)
    fitting = fitting_of(about.recipe)
    inside_set = data.load(inside, split="test", **fitting).numbered_as(about.classes)
    damaged = fitting["damaged"]
    others = {name: part_of(name, inside_set, options.limit, options.seed, damaged) for name in outside}
    whole = partial(evaluate, model, inside=inside_set, outside=others, eps=eps)
    if budget is None:
        return whole(options=options)
    certified, attacked = budget.shares(model, options, inside_set, len(others), eps)
    most = max(map(len, others.values()))
    certified = None if certified is None or certified >= most else certified
    all_of_them = options.attack is None or attacked is None or attacked >= (certified or most)
    if certified:
        options = replace(options, limit=certified)
    if options.console is not None and processes.is_main() and (certified or not all_of_them):
        sentence = budget.left_out(certified, None if all_of_them else attacked, list(others.values()))
        options.console.print(f"{options.name}: {sentence}", soft_wrap=True, highlight=False, markup=False)
    if all_of_them:
        return whole(options=options)
    found = whole(options=replace(options, attacks=None))
    return found.plus(*whole(options=replace(options, limit=attacked))) if attacked else found


def _place(run: Path) -> Path:
    """Where results go: into the run's folder, for a shipped model into one of its own."""
    if run.is_dir():
        return run
    if run.exists() or not model_path(run).is_file():
        raise NotFound(f"{run} is neither the folder of a run nor a shipped model: check its path")
    return Path("runs") / "shipped" / title(run)


def gather(folders: Sequence[Path | str]) -> Results:
    """The results of several folders; where one has none of its own, those of the runs inside it.

    Runs that were not evaluated yet are left out. Models of the same name from different folders are told apart by
    their paths.
    """
    found: dict[Path, Results] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise NotFound(f"there is no folder {folder}: name runs that were evaluated")
        own = read_results(folder)
        places = [folder] if own is not None else sorted(folder.iterdir())
        found |= {place.resolve(): results for place in places if (results := read_results(place)) is not None}
    if not found:
        names = " ".join(map(str, folders))
        raise NotFound(f"nothing was evaluated yet: make results with 'prood evaluate {names} --outside NAME'")
    titles = _told_apart(found)
    named = (replace(one, model=titles[place, one.model]) for place, results in found.items() for one in results)
    return Results(tuple(named))


def _told_apart(found: Mapping[Path, Results]) -> dict[tuple[Path, str], str]:
    """A name for each model of each folder: its own, or where others have the same, its path as far as needed."""
    names: dict[tuple[Path, str], str] = {}
    for name in dict.fromkeys(one.model for results in found.values() for one in results):
        places = [place for place, results in found.items() if any(one.model == name for one in results)]
        paths = {place: place.parent if place.name == name else place for place in places}
        if len(set(paths.values())) < len(paths):
            raise Mismatch(f"two results in {places[-1]} belong to a model {name!r}: name only one of them")
        kept = 0 if len(places) == 1 else 1
        while len({path.parts[-kept:] for path in paths.values()}) < len(paths):
            kept += 1
        for place, path in paths.items():
            names[place, name] = "/".join([*path.parts[len(path.parts) - kept :], name])
    return names


def counterpart(trained_on: str | None) -> str | None:
    """The test set of cifar10:train, folder:mine/train or csv:mine/train.csv; None where the name does not tell."""
    name, found = re.subn(r"(?<=[:/])train(?=(\.npz|\.csv)?$)", "test", trained_on or "")
    return name if found else None
