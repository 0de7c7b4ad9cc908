"""Training: one loop, recipes, runs."""

from prood.recipes import names as recipe_names
from prood.training.estimating import Estimate
from prood.training.explain import describe, explain_recipe
from prood.training.joint import combine
from prood.training.loop import fit
from prood.training.options import TrainOptions
from prood.training.recipe import Recipe, load_recipe
from prood.training.run import Run
from prood.training.trainer import estimate, held_back, images_to_choose_by, train

__all__ = [
    "Estimate",
    "Recipe",
    "Run",
    "TrainOptions",
    "combine",
    "describe",
    "estimate",
    "explain_recipe",
    "fit",
    "held_back",
    "images_to_choose_by",
    "load_recipe",
    "recipe_names",
    "train",
]
