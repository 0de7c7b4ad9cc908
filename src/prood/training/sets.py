"""The image sets of a recipe: what is trained on, and what is kept from training to choose by."""

from prood import data
from prood.data import Images, ImageSet
from prood.errors import BadValue, Mismatch
from prood.training.recipe import Recipe

MOST_CLASSES = 100_000
"""A label beyond is taken for a mistake, before memory is asked for so many classes."""


def held_back(recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """The images of both training sets, inside and outside, that the recipe keeps from training.

    They serve to choose a shift, a threshold or an epoch. Every method and every seed leaves the same ones out.
    """
    if not recipe.data.held_back:
        raise BadValue(f"recipe {recipe.name!r} holds no images back: say how many with data.held_back, and train")
    _, inside = _divided(recipe.data.inside, recipe)
    _, outside = _divided(recipe.data.outside, recipe, like=inside)
    return inside.load(), outside.load()


def images_to_choose_by(recipe: Recipe) -> tuple[ImageSet, ImageSet]:
    """Inside and outside, for choices: what the recipe holds back from training, else the splits `validation`."""
    if recipe.data.held_back:
        return held_back(recipe)
    inside = data.load(f"{recipe.data.inside.removesuffix(':train')}:validation")
    return inside, data.load(f"{recipe.data.outside.removesuffix(':train')}:validation", like=inside)


def training_set(name: str, recipe: Recipe, like: Images | None = None) -> Images:
    """The set to train on, without what is held back, or the part of that which the recipe's limit leaves."""
    if recipe.data.held_back:
        found, _ = _divided(name, recipe, like)
    else:
        found = data.open_set(name, like=like, split="train")
    return found.subset(recipe.data.limit, seed=0) if recipe.data.limit else found


def _divided(name: str, recipe: Recipe, like: Images | None = None) -> tuple[Images, Images]:
    """A training set without what is held back, and that; the recipe's limit and seed have no say in it."""
    return data.open_set(name, like=like, split="train").divided(recipe.data.held_back, seed=0)


def class_names(inside: Images) -> list[str]:
    """The set's own, or the numbers of its labels."""
    if inside.labels is None:
        raise Mismatch(f"{inside.name} has no labels: a classifier cannot be trained on it")
    highest = int(inside.labels.max())
    if highest >= MOST_CLASSES:
        raise BadValue(f"{inside.name} has a label {highest}: number the classes from 0, without gaps")
    return list(inside.classes or map(str, range(highest + 1)))
