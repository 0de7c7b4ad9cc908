"""The paper's experiments on CIFAR: every model of its main table, from the images to published results.

Each model is a run's folder. What is there already is not made again, so an interrupted reproduction continues.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from prood import processes
from prood.atomic import write_text
from prood.bounds import Method
from prood.errors import ProodError
from prood.evaluation import (
    Results,
    card,
    choose_shift,
    evaluate_run,
    publish,
    results_table,
    sweep,
)
from prood.evaluation import threshold as threshold_at
from prood.evaluation.published import SHIFT_FILE, portable, read_json, read_one, set_name
from prood.models import MODEL_FILE, Discriminator, ProoD, fingerprint, load, read_metadata, rounded, save
from prood.training import Recipe, combine, held_back, load_recipe, train

STUDIES = ("cifar10", "cifar100")
SHIFTS = tuple(step / 4 for step in range(25))
"""From 0 to 6, as in the paper. It trains for each and so has whole numbers only; here one pass serves all of them."""
COMPACT = ("networks.classifier.name=compact", "train.epochs=100", "train.decay_from=6")
"""The shipped model has a smaller classifier, and for both sets the same schedule."""
QUICK = {
    "discriminator": ("train.epochs=70", "train.decay_from=35", "train.eps_ramp=35"),
    "prood": ("train.epochs=25",),
}
"""What `run_fast` trains by: shorter schedules, meant for five minutes on one GPU."""
TPR = 0.95
TOLERANCE = 0.001
"""A shift is good enough if it costs less AUC than this, about what two trainings of OE differ by."""
RULE = (
    f"the highest GAUC among the shifts that cost less than {100 * TOLERANCE:g} points of OE's AUC, "
    "else the highest AUC; on held-back training images"
)


@dataclass(frozen=True)
class Study:
    """An in-distribution, its recipes, and where everything goes."""

    name: str
    folder: Path
    outside: str | None = None  # another training out-distribution than the recipe's
    seed: int = 0
    delta: float | None = None  # the shift of every joint model; else it is chosen
    device: str | None = None
    command: str = ""
    console: Console = field(default_factory=Console)

    def __post_init__(self) -> None:
        if self.name not in STUDIES:
            raise ProodError(f"cannot reproduce {self.name!r}: choose one of {', '.join(STUDIES)}")

    @property
    def against(self) -> str:
        """The training out-distribution by its short name: results must not hold the folders of one machine."""
        return set_name(self.recipe().data.outside).removesuffix(":train")

    def recipe(self, kind: str = "fast", *settings: str) -> Recipe:
        recipe = load_recipe(f"{self.name}-{kind}")
        changed = [f"train.seed={self.seed}", *settings]
        changed += [f"data.outside={self.outside}"] if self.outside else []
        for method in recipe.train:
            recipe = recipe.with_settings(method, changed)
        return recipe

    def train(
        self, run: str, method: str, recipe: Recipe, *, on: str | None = None, shift: float | None = None
    ) -> nn.Module:
        """Train into the folder of this name; `on` names the run of the discriminator of a joint model."""
        began = time.monotonic()
        discriminator = None if on is None else self.folder / on
        model = train(
            method,
            recipe,
            self.folder / run,
            discriminator=discriminator,
            shift=shift,
            resume=True,
            device=self.device,
            console=self.console,
        )
        self.console.print(f"{run:<24} {time.monotonic() - began:6.1f} s", highlight=False)
        return model

    def shift(self, discriminator: str) -> float:
        """The one that is set, else choose among joint models of OE's classifier with every shift, as `RULE` says.

        The paper trains a classifier for each. But two trainings differ in AUC by more than two shifts do, and so here
        OE is compared with itself: what g adds to it, or costs.
        """
        if self.delta is not None:
            return self.delta
        file = self.folder / f"{discriminator}-shift.json"
        if not self._still_holds(file, discriminator):
            recipe, device = self.recipe(), processes.device(self.device)
            inside, outside = held_back(recipe)
            eps = recipe.resolved("discriminator")["train"]["eps"]
            classifier = self.train("oe", "oe", recipe)
            certified, _ = load(self.folder / discriminator, device=device)
            assert isinstance(certified, Discriminator)
            baseline, candidates = sweep(classifier, certified, inside, outside, eps, SHIFTS, device=device)
            content = {
                "inside": self.name,
                "outside": self.against,
                "seed": self.seed,
                "discriminator": discriminator,
                "classifier": "oe",
                "baseline": {"auc": baseline, "accuracy": candidates[0].accuracy},
                "candidates": [asdict(candidate) for candidate in candidates],
                "chosen": choose_shift(candidates, baseline, tolerance=TOLERANCE).shift,
                "rule": RULE,
                "images": len(outside),
                "weights": {"oe": fingerprint(classifier), discriminator: fingerprint(certified)},
            }
            if processes.is_main():
                write_text(file, json.dumps(content, indent=1) + "\n")
            processes.barrier()
        return float(read_json(file)["chosen"])

    def _still_holds(self, file: Path, discriminator: str) -> bool:
        """Whether a choice is there that was made among these shifts, with the networks that are here."""
        if not file.is_file():
            return False
        content = read_json(file)
        shifts = tuple(one.get("shift") for one in content.get("candidates", ()))
        here = [run for run in ("oe", discriminator) if (self.folder / run / MODEL_FILE).is_file()]
        known = content.get("weights", {})
        return shifts == SHIFTS and all(known.get(run) == fingerprint(load(self.folder / run)[0]) for run in here)

    def evaluate(
        self,
        run: str,
        *,
        attacks: str | None = None,
        limit: int | None = None,
        method: Method | None = None,
        eps: Sequence[float] | None = None,
    ) -> Results:
        began = time.monotonic()
        results = evaluate_run(
            self.folder / run,
            attacks=attacks,
            limit=limit,
            method=method,
            eps=eps,
            compile=attacks in ("paper", "strong") and processes.device(self.device).type == "cuda",  # pays there
            device=self.device,
            console=self.console,
        )
        about = attacks or method or "certificates"
        self.console.print(f"{run:<24} {time.monotonic() - began:6.1f} s of evaluation ({about})", highlight=False)
        return results

    def publish(self, run: str, title: str, results: Path) -> Path:
        file = results / self.name / self.against / f"{run}-{self.seed}.json"
        if processes.is_main():
            publish(self.folder / run, file, command=self.command, title=title, outside=self.against, seed=self.seed)
        processes.barrier()
        return file


MODELS = {
    "plain": "Plain",
    "oe": "OE",
    "discriminator-ibp": "ProoD-Disc",
    "prood-ibp": "ProoD",
    "prood-s-ibp": "ProoD-S",
    "discriminator": "ProoD-Disc, linear bound",
    "prood": "ProoD, linear bound",
    "prood-s": "ProoD-S, linear bound",
    "eb": "EB",
    "acet": "ACET",
    "atom": "ATOM",
    "good80": "GOOD80",
    "good100": "GOOD100",
    "ccu": "CCU",
    "robust": "Robust",
    "robust-prood": "Robust-ProoD",
}
"""Runs and their titles. A discriminator is trained as in the paper, with intervals (ibp), or with linear bounds."""
LINEAR = ("discriminator", "prood", "prood-s")
"""Runs with a discriminator that was trained with linear bounds. They are certified by tighter ones besides."""
PAPERS = "-ibp"
"""The ending of runs with the paper's discriminator, whose bounds are intervals."""
SHIPPED = "shipped"
"""The run of the compact joint model that comes with the package."""
OWN = tuple(MODELS)[:8]
"""What `reproduce` makes besides. The baselines come with the tables that show them: 'prood reproduce table main'."""


def make(study: Study, run: str) -> None:
    """Train a model of the table, and before it what it is made of; what is there is taken as it is."""
    base, ending = run.removesuffix(PAPERS), PAPERS if run.endswith(PAPERS) else ""
    if base in ("plain", "oe"):
        study.train(run, base, study.recipe())
    elif base == "discriminator":
        study.train(run, base, study.recipe("ibp" if ending else "fast"))
    else:
        discriminator = f"discriminator{ending}"
        make(study, discriminator)
        if base == "prood":
            study.train(run, base, study.recipe(), on=discriminator, shift=study.shift(discriminator))
        elif not (study.folder / run / MODEL_FILE).is_file():
            make(study, "oe")
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
        facts = {name: portable(getattr(about, name)) for name in ("classes", "eps", "recipe", "seed", "data")}
        threshold = threshold_at(confidence.cpu().numpy(), TPR)
        save(model, run / MODEL_FILE, half=True, threshold=threshold, tpr=TPR, **facts)
    study.evaluate(SHIPPED)
    file = study.publish(SHIPPED, "ProoD, linear bound, compact", results)
    write_text(run / f"{study.name}.md", card(read_one(file), read_metadata(run), name=study.name))
    return run


def reproduce(
    study: Study,
    *,
    models: Sequence[str] = (),
    results: Path = Path("results"),
    attacks: str | None = "paper",
    attacked: int = 100,
) -> None:
    """Train, choose the shifts, certify, ship, attack: all models, or these; each is published under `results`.

    The attacks come last and see `attacked` images of each set: they take longer than everything else.
    """
    known = (*OWN, SHIPPED)
    for model in models:
        if model not in known:
            raise ProodError(f"there is no model {model!r} to reproduce: choose among {', '.join(known)}")
    wanted = [run for run in known if not models or run in models]
    runs = [run for run in wanted if run != SHIPPED]
    for run in runs:
        make(study, run)
    for run in runs:
        study.evaluate(run)
        study.publish(run, MODELS[run], results)
    if SHIPPED in wanted:
        make(study, "discriminator")
        ship(study, results)
    tighter = [run for run in LINEAR if run in runs]
    if tighter:  # first that whose bounds serve the others, asked for or not
        tighter = list(dict.fromkeys(["discriminator", *tighter]))
    for run in tighter:
        study.evaluate(run, method="crown", eps=study.recipe().evaluate.eps[:1])
        if run in runs:
            study.publish(run, MODELS[run], results)
    place = results / study.name / study.against
    for discriminator in ("discriminator", f"discriminator{PAPERS}"):
        chosen = study.folder / f"{discriminator}-shift.json"
        public = place / discriminator / SHIFT_FILE
        if chosen.is_file() and (study.seed == 0 or not public.is_file()):  # tables take that of seed 0
            write_text(public, chosen.read_text(encoding="utf-8"))
    if attacks:
        for run in runs:
            study.evaluate(run, attacks=attacks, limit=attacked)
            study.publish(run, MODELS[run], results)
