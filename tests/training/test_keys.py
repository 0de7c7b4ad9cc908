import tomllib
from dataclasses import fields

import pytest

from prood.data import Augment
from prood.methods import METHODS
from prood.methods.declaring import meanings
from prood.training import TrainOptions, explain, explain_recipe, load_recipe, recipe_names
from prood.training.recipe import DataTable, EvaluateTable, parse


def names(*kinds: type) -> list[str]:
    return [item.name for kind in kinds for item in fields(kind)]


def test_every_key_is_explained_and_no_other() -> None:
    assert list(explain.AUGMENT) == names(Augment)
    for kind in (DataTable, EvaluateTable, TrainOptions, *METHODS.values()):
        assert list(meanings(kind)) == names(kind)
        assert all(meanings(kind).values())


@pytest.mark.parametrize("name", recipe_names())
def test_an_explained_recipe_is_the_recipe(name: str) -> None:
    recipe = load_recipe(name)
    text = explain_recipe(recipe)
    again = parse(tomllib.loads(text), name, recipe.description)
    for method in recipe.train:
        assert again.resolved(method) == recipe.resolved(method)
    assert again.shift == recipe.shift
    for line in text.splitlines()[1:]:
        assert not line or line.startswith("[") or "  # " in line, f"{line!r} is not explained"


def test_a_key_without_a_value_is_shown_as_a_comment() -> None:
    text = explain_recipe(load_recipe("cifar10"))
    assert "\n# decay_from  " in text
    recipe = load_recipe("cifar10-fast")
    shown = f"\ndecay_from = {recipe.options('discriminator').decay_from}  "
    assert shown in explain_recipe(recipe)


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        ("augment.discriminator", ["autoaugment = false", 'border = "reflect"']),
        ("evaluate.good", ['bound = "ibp"']),
    ],
)
def test_what_one_method_has_of_its_own_is_shown_where_it_differs(table: str, shown: list[str]) -> None:
    text = explain_recipe(load_recipe("cifar10-fast"))
    _, _, own = text.partition(f"\n[{table}]\n")
    lines = own.partition("\n\n")[0].splitlines()
    assert [line.partition("  # ")[0].strip() for line in lines] == shown
    assert f"[{table.partition('.')[0]}." not in explain_recipe(load_recipe("cifar10"))
