"""The paper's experiments on CIFAR: how one of its models is trained, certified, attacked and published.

Each model is a run's folder. What is there already is not made again, so an interrupted reproduction continues.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import nn

from prood import processes
from prood.atomic import write_text
from prood.bounds import Method
from prood.errors import ProodError
from prood.evaluation import Results, evaluate_run
from prood.evaluation.words import set_name
from prood.models import MODEL_FILE, Discriminator, fingerprint, load
from prood.studies import choose_shift, publish, sweep
from prood.studies.published import read_json
from prood.training import Recipe, held_back, load_recipe, train

STUDIES = ("cifar10", "cifar100")
SHIFTS = tuple(step / 4 for step in range(25))
"""From 0 to 6, as in the paper. It trains for each and so has whole numbers only; here one pass serves all of them."""
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

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to another process, without the console: several would write over one another."""
        return {name: value for name, value in vars(self).items() if name != "console"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, console=Console(quiet=True))

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
        file = self.shift_file(discriminator)
        if not self._still_holds(file, discriminator):
            recipe, device = self.recipe(), processes.device(self.device)
            inside, outside = held_back(recipe)
            eps = recipe.resolved("discriminator")["train"]["eps"]
            if not (self.folder / "oe" / MODEL_FILE).is_file():
                self.train("oe", "oe", recipe)
            classifier, _ = load(self.folder / "oe", device=device)
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

    def shift_file(self, discriminator: str) -> Path:
        """Where the choice of a shift is kept."""
        return self.folder / f"{discriminator}-shift.json"

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
