"""Where experiments are made: a recipe, the runs trained by it, and what is published of them.

An experiment asks for models by name. What is there is taken, what is not is trained, and nothing is made twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from prood import data, processes
from prood.attacks import preset
from prood.compare import ENTRIES
from prood.compare.entries import available
from prood.data import ImageSet
from prood.errors import ProodError
from prood.evaluation import evaluate_run
from prood.evaluation.measured import measured
from prood.evaluation.runs import counterpart, part_of
from prood.evaluation.words import set_name
from prood.models import MODEL_FILE, fingerprint, load
from prood.reproduce.study import MODELS, PAPERS, STUDIES, Study
from prood.studies import Published, publish
from prood.studies.published import SHIFT_FILE, has_news, read_json, read_one
from prood.training import Recipe, combine, images_to_choose_by, load_recipe, train

LABS = ("quickstart", *STUDIES)
ENTRY = {entry.run: entry for entry in ENTRIES}
SHORTER = {"quickstart": {"robust": ("train.epochs=8", "train.eps_ramp=4")}}
"""Schedules that are cut so that all experiments of the quickstart take minutes; the published recipe says so, too."""


@dataclass(frozen=True)
class Lab:
    """`recipe_name` is one of LABS or a .toml file with a table [evaluate]; `folder` holds the runs.

    Runs of seed 0 lie in the folder itself, where 'prood quickstart' and 'prood reproduce cifar10' put theirs; those of
    another seed in `seed-N`. `training` says whether what is missing is trained: True, False (only what is there and
    what is published counts) or None: yes, except on CIFAR without a GPU.
    """

    recipe_name: str
    folder: Path
    results: Path = Path("results")
    seeds: tuple[int, ...] = (0, 1, 2)
    attacks: str | None = "fast"
    attacked: int = 20  # images of each set
    training: bool | None = None
    device: str | None = None
    command: str = ""
    console: Console = field(default_factory=Console)
    models: dict[str, str] = field(default_factory=dict, compare=False)  # used so far: 'prood-0' → its weights
    notes: list[str] = field(default_factory=list, compare=False)  # what the one who reads the results must know

    def __post_init__(self) -> None:
        if self.attacks is not None:
            preset(self.attacks)  # a wrong name is said now, not when everything is trained
        if not self.seeds:
            raise ProodError("an experiment needs at least one seed: name some with --seeds 0,1,2")
        if len(set(self.seeds)) < len(self.seeds):
            raise ProodError(f"a seed counts once, not as in {', '.join(map(str, self.seeds))}: name different ones")
        if not self.base.evaluate.outside or not self.base.evaluate.eps:
            raise ProodError(f"recipe {self.name!r} does not say what to evaluate: add outside and eps to [evaluate]")
        _ = self.inside_name  # a recipe without one is refused now, too

    # The recipe and its images

    @property
    def name(self) -> str:
        return Path(self.recipe_name).stem

    @property
    def is_study(self) -> bool:
        return self.recipe_name in STUDIES

    @cached_property
    def base(self) -> Recipe:
        return load_recipe(f"{self.recipe_name}-fast" if self.is_study else self.recipe_name)

    def recipe(self, *settings: str, seed: int = 0, of: Recipe | None = None) -> Recipe:
        """The recipe with these settings for every method, and this seed of training."""
        recipe = of or self.base
        for method in recipe.train:
            recipe = recipe.with_settings(method, [f"train.seed={seed}", *settings])
        return recipe

    @property
    def against(self) -> str:
        """The training out-distribution by its short name."""
        return set_name(self.base.data.outside).removesuffix(":train")

    @property
    def eps(self) -> float:
        """The radius that the discriminator is trained for, and that tables are about."""
        return float(self.base.resolved("discriminator")["train"]["eps"])

    @property
    def inside_name(self) -> str:
        """The test set of the in-distribution."""
        trained_on = self.base.data.inside
        found = counterpart(trained_on if ":" in trained_on else f"{trained_on}:train")
        if found is None:
            raise ProodError(
                f"recipe {self.name!r} does not say which test set belongs to {trained_on}: call it FOLDER/train or "
                "FOLDER/train.npz, and the test set beside it FOLDER/test or FOLDER/test.npz"
            )
        return found

    def inside(self) -> ImageSet:
        """All images of it."""
        return data.load(self.inside_name)

    def outside(self) -> dict[str, ImageSet]:
        """The test out-distributions by name, and of each the images that evaluations take."""
        planned = self.base.evaluate
        return {name: part_of(name, self.inside(), planned.limit, seed=0) for name in planned.outside}

    def held_back(self) -> tuple[ImageSet, ImageSet]:
        """Images inside and outside for choices: the recipe's held-back ones, else the splits `validation`."""
        return images_to_choose_by(self.base)

    # Trained models

    @property
    def may_train(self) -> bool:
        """Whether models that are missing are trained here."""
        return self.training if self.training is not None else not self.is_study or torch.cuda.is_available()

    def place(self, run: str, seed: int = 0) -> Path:
        """The folder of a run, whether it is there or not."""
        return self.folder / run if seed == 0 else self.folder / f"seed-{seed}" / run

    def has(self, run: str, seed: int = 0) -> bool:
        return (self.place(run, seed) / MODEL_FILE).is_file()

    def run(self, run: str, seed: int = 0) -> Path:
        """The folder of a trained run by a name of `prood.compare.ENTRIES`, trained now if it is not there.

        On CIFAR the ending -ibp names the paper's discriminator, and joint models with it.
        """
        base = self._base(run)
        if base not in ENTRY:
            raise ProodError(f"there is no model {run!r}: choose one of {', '.join(ENTRY)}")
        if not self.has(run, seed):
            self._make(run, base, seed)
        self._used(run, seed, self.weights(run, seed))
        return self.place(run, seed)

    def _base(self, run: str) -> str:
        return run.removesuffix(PAPERS) if self.is_study else run

    def _make(self, run: str, base: str, seed: int) -> None:
        if not self.may_train:
            raise ProodError(f"{self.name} has no trained {run!r} of seed {seed}: train it on a GPU, or with --train")
        entry, ending = ENTRY[base], run.removeprefix(base)
        needed = [self.run(name + ending if name == "discriminator" else name, seed) for name in entry.needs]
        folder = self.place(run, seed)
        if entry.method is None:
            if processes.is_main():
                combine(needed[0], needed[1], folder, shift=self.shift(ending), resume=True)
            processes.barrier()
            return
        papers = ending and base == "discriminator"
        settings = (*entry.settings, *SHORTER.get(self.name, {}).get(base, ()))
        recipe = self.recipe(seed=seed, of=load_recipe(f"{self.name}-ibp") if papers else None)
        options: dict[str, Any] = {"resume": True, "device": self.device, "console": self.console}
        if entry.method == "prood":
            options |= {"discriminator": needed[0], "shift": self.shift(ending)}
        train(entry.method, recipe.with_settings(entry.method, settings), folder, **options)

    def shift(self, ending: str = "") -> float:
        """Δ of the joint models: the recipe's, on CIFAR the one chosen on held-back images with seed 0."""
        if not self.is_study:
            return self.base.shift
        chosen = self.results / self.name / self.against / f"discriminator{ending}" / SHIFT_FILE
        if not self.has(f"discriminator{ending}") and chosen.is_file():
            return float(read_json(chosen)["chosen"])
        return self._study.shift(self.run(f"discriminator{ending}").name)

    @property
    def _study(self) -> Study:
        """The study of the same models, those of seed 0."""
        return Study(self.name, self.folder, device=self.device, console=self.console)

    def weights(self, run: str, seed: int = 0) -> str | None:
        """The fingerprint of a model: of the trained one, else of the published one; None if there is neither."""
        if self.has(run, seed):
            return fingerprint(load(self.place(run, seed))[0])
        found = self._read(run, seed)
        return None if found is None else found.weights

    def _used(self, run: str, seed: int, weights: str | None) -> None:
        if weights is not None:
            self.models[f"{run}-{seed}"] = weights

    # What is published of them

    @property
    def titles(self) -> dict[str, str]:
        """Every model that there may be, in the order of a table."""
        return MODELS if self.is_study else {entry.run: entry.title for entry in available(self.base)}

    def file(self, run: str, seed: int = 0) -> Path:
        return self.results / self.name / self.against / f"{run}-{seed}.json"

    def published(
        self, run: str, seed: int = 0, *, eps: Sequence[float] = (), attack: bool = True, measure: bool = False
    ) -> Published | None:
        """What is published of a model, evaluated at these radii, by default the recipe's; None if it is not here.

        With `measure`, robust accuracy and what the model says far away are part of it, if anything is attacked.
        A trained run that is here is evaluated and published first, as far as it was not yet. What was published
        elsewhere is taken as it is. What is neither is trained if that may be.
        """
        missing = not self.file(run, seed).is_file() and self.may_train
        if self.training is not False and (self.has(run, seed) or missing):
            self._publish(run, seed, eps or self.base.evaluate.eps, attack, measure)
        found = self._read(run, seed)
        if found is not None:
            self._used(run, seed, found.weights)
        return found

    def _publish(self, run: str, seed: int, eps: Sequence[float], attack: bool, measure: bool) -> None:
        folder, file = self.run(run, seed), self.file(run, seed)
        planned = self.base.evaluate  # of this recipe: an older run may have had another plan
        eps = [*eps, self.eps] if measure and self.eps not in eps else eps
        options: dict[str, Any] = {"inside": self.inside_name, "outside": planned.outside, "eps": eps}
        options |= {"device": self.device, "console": self.console}
        options["method"] = self.base.evaluate_for(ENTRY[self._base(run)].method).method
        evaluate_run(folder, attacks=None, limit=planned.limit, **options)
        if attack and self.attacks is not None:
            attacked = evaluate_run(folder, attacks=self.attacks, limit=self.attacked, **options)
            if measure:
                measured(folder, next(one for one in attacked if one.eps == self.eps), self.device)
        if processes.is_main():  # it alone looks whether there is news: it is the one that writes
            before = self._read(run, seed)
            if not before or before.weights != self.weights(run, seed) or has_news(folder, before):
                facts: dict[str, Any] = {"command": self.command, "title": self.titles[run], "outside": self.against}
                publish(folder, file, seed=seed, **facts)
        processes.barrier()

    def _read(self, run: str, seed: int) -> Published | None:
        file = self.file(run, seed)
        return read_one(file) if file.is_file() else None
