"""Where a study is carried out: its recipe and images, the folders of its runs, and the files that are published."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from prood import data
from prood.errors import BadValue
from prood.evaluation import EvaluateOptions
from prood.evaluation.runs import counterpart
from prood.evaluation.sets import part_of
from prood.evaluation.words import set_name
from prood.models import MODEL_FILE, fingerprint, load
from prood.studies.graph import Node, Study
from prood.studies.published import SHIFT_FILE, Published, read_one
from prood.training import Recipe, images_to_choose_by, load_recipe


@dataclass(frozen=True)
class Site:
    """A study in a folder. Runs of the seed `home` lie in the folder itself, those of another in `seed-N` below it.

    `training` says whether what is missing is trained: True, False (only what is there and what is published counts)
    or None: yes, except for a study that is meant for a GPU where there is none. A seed None is the recipe's.
    """

    study: Study
    folder: Path
    results: Path = Path("results")
    seeds: tuple[int | None, ...] = (0, 1, 2)
    home: int | None = 0
    own_shifts: bool = False  # each seed chooses its own; otherwise all take the shift of seed `home`
    training: bool | None = None
    device: str | None = None
    command: str = ""
    console: Console = field(default_factory=Console)
    models: dict[str, str] = field(default_factory=dict, compare=False)  # used so far: 'prood-0' → its weights
    notes: list[str] = field(default_factory=list, compare=False)  # what the one who reads the results must know

    def __post_init__(self) -> None:
        """What is wrong is said now, not when everything is trained."""
        EvaluateOptions(attacks=self.study.attacks, bound=self.study.bound)  # refuses unknown ones
        if not self.seeds:
            raise BadValue("an experiment needs at least one seed: give it with --seeds 0,1,2")
        if len(set(self.seeds)) < len(self.seeds):
            raise BadValue(f"a seed occurs twice in {', '.join(map(str, self.seeds))}: give different seeds")
        planned = self.recipe.evaluate
        if not planned.outside or not (planned.eps or "discriminator" in self.recipe.train):
            raise BadValue(f"recipe {self.name!r} does not say what to evaluate: add outside and eps to [evaluate]")
        _ = self.radii, self.inside_name

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to another process, without the console: several would write over one another."""
        return {name: value for name, value in vars(self).items() if name != "console"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, console=Console(quiet=True))

    # The recipe and its images

    @property
    def name(self) -> str:
        return self.study.name

    @cached_property
    def recipe(self) -> Recipe:
        """The study's own, which says what is evaluated."""
        found = self.study.recipe
        return self._against(found if isinstance(found, Recipe) else load_recipe(found))

    def recipe_of(self, node: Node, seed: int | None) -> Recipe:
        """The recipe that trains a node."""
        assert node.method is not None
        recipe = self.recipe if node.recipe is None else self._against(load_recipe(node.recipe))
        seeded = [] if seed is None else [f"train.seed={seed}"]
        return recipe.with_settings(node.method, [*seeded, *node.settings])

    def _against(self, recipe: Recipe) -> Recipe:
        outside = self.study.outside
        return recipe.with_settings("", [f"data.outside={outside}"]) if outside else recipe

    @property
    def against(self) -> str:
        """The training out-distribution by its short name: results must not hold the folders of one machine."""
        return set_name(self.recipe.data.outside).removesuffix(":train")

    @property
    def radii(self) -> list[float]:
        """Those of the recipe's table [evaluate], else the one that its discriminator is trained for."""
        return list(self.recipe.evaluate.eps) or [self.eps]

    @property
    def eps(self) -> float:
        """The radius that the discriminator is trained for, and that tables are about."""
        return float(self.recipe.resolved("discriminator")["train"]["eps"])

    @property
    def inside_name(self) -> str:
        """The test set of the in-distribution."""
        trained_on = self.recipe.data.inside
        found = self.study.inside or counterpart(trained_on if ":" in trained_on else f"{trained_on}:train")
        if found is None:
            fault = f"recipe {self.name!r} does not say which test set belongs to {trained_on}"
            raise BadValue(f"{fault}: call it FOLDER/train (or train.npz), and the test set FOLDER/test (or test.npz)")
        return found

    def inside(self) -> data.ImageSet:
        """All images of it."""
        return self.recipe.data.open(self.inside_name, split="test").load()

    def outside(self) -> dict[str, data.ImageSet]:
        """The test out-distributions by name, and of each the images that evaluations take."""
        planned = self.recipe.evaluate
        damaged = self.recipe.data.damaged
        return {name: part_of(name, self.inside(), planned.limit, 0, damaged) for name in planned.outside}

    @cached_property
    def sets(self) -> dict[str, Any]:
        """The sets of a study that is evaluated together, whole."""
        inside = self.inside()
        table = self.recipe.data
        outside = {name: table.open(name, split=None, like=inside).load() for name in self.study.together}
        return {"inside": inside, "outside": outside}

    def held_back(self) -> tuple[data.ImageSet, data.ImageSet]:
        """Images inside and outside for choices: the study's, else those that the recipe holds back or names."""
        if self.study.held_back is None:
            return images_to_choose_by(self.recipe)
        inside = data.load(self.study.held_back[0])
        return inside, data.load(self.study.held_back[1], like=inside)

    # Runs, and what is published of them

    @property
    def may_train(self) -> bool:
        """Whether models that are missing are trained here."""
        return self.training if self.training is not None else not self.study.gpu or torch.cuda.is_available()

    def place(self, name: str, seed: int | None = 0) -> Path:
        """The folder of a run, whether it is there or not."""
        folder = self.folder if seed == self.home else self.folder / f"seed-{seed}"
        return folder if name == self.study.whole else folder / name

    def has(self, name: str, seed: int | None = 0) -> bool:
        return (self.place(name, seed) / MODEL_FILE).is_file()

    def weights(self, name: str, seed: int | None = 0) -> str | None:
        """The fingerprint of a model: of the trained one, else of the published one; None if there is neither."""
        if self.has(name, seed):
            return fingerprint(load(self.place(name, seed))[0])
        found = self.read(name, seed)
        return None if found is None else found.weights

    def file(self, name: str, seed: int | None = 0) -> Path:
        return self.results / self.name / self.against / f"{name}-{seed}.json"

    def read(self, name: str, seed: int | None = 0) -> Published | None:
        file = self.file(name, seed)
        return read_one(file) if file.is_file() else None

    def shift_file(self, discriminator: str, seed: int | None) -> Path:
        """Where the choice of a shift is kept."""
        return self.place(f"{discriminator}-shift.json", seed)

    def public_shift(self, discriminator: str) -> Path:
        """Where it is published, for all seeds."""
        return self.results / self.name / self.against / discriminator / SHIFT_FILE
