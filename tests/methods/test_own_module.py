"""A method in a module outside the package, through the command line: train, recipes, evaluate, compare."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from prood.errors import AlreadyThere, BadValue, NotFound, UnknownName
from prood.methods import METHODS, Objective, option, register
from prood.methods.declaring import load_installed, load_modules
from prood.models import architectures
from prood.training import load_recipe

MODULE = '''
from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F

from prood.methods import Objective, interlace, option, ramp, register, separate
from prood.models import architecture


@architecture("pooled")
def pooled(classes: int) -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(4, classes))


@register
@dataclass(frozen=True)
class Unsure(Objective):
    """-log p_f(y|x) + weight * max_k log p_f(k|z)."""

    name = "unsure"
    title = "Unsure"
    summary = "a classifier whose largest probability of an outlier is pressed down"

    weight: float = option(1.0, "of the outliers' part of the loss")
    weight_ramp: float = option(0.0, "that weight grows linearly from 0 over so many epochs")

    def __call__(self, model, batch_in, batch_out, step):
        inside, outside = separate(model(interlace(batch_in.images, batch_out.images)))
        loss_in = F.cross_entropy(inside, batch_in.targets)
        loss_out = F.log_softmax(outside, 1).amax(1).mean()
        return loss_in + self.weight * ramp(step, self.weight_ramp) * loss_out, {"loss_out": loss_out}
'''

RECIPE = """
modules = ["my_method.py"]

[data]
inside = "npz:{folder}/train.npz"
outside = "npz:{folder}/others.npz"

[networks.classifier]
name = "small"
width = 2

[networks.unsure]
name = "pooled"

[networks.discriminator]
size = "digits"

[evaluate]
outside = ["npz:{folder}/others.npz"]
eps = [0.1]
limit = 6

[train.plain]
epochs = 1
batch = 20

[train.oe]
epochs = 1
batch = 20

[train.unsure]
epochs = 2
batch = 20
weight = 0.5
weight_ramp = 1
"""


@pytest.fixture
def place(tmp_path, squares_and_ramps):
    """A folder with the module, a recipe that names it, and images. Afterwards nobody knows the method any more."""
    squares, labels, ramps = squares_and_ramps
    np.savez(tmp_path / "train.npz", images=squares, labels=labels)
    np.savez(tmp_path / "test.npz", images=squares[:20], labels=labels[:20])
    np.savez(tmp_path / "others.npz", images=ramps)
    (tmp_path / "my_method.py").write_text(MODULE)
    (tmp_path / "mine.toml").write_text(RECIPE.format(folder=tmp_path))
    known, networks, modules = dict(METHODS), dict(architectures._BUILDERS), set(sys.modules)
    yield tmp_path
    for table, before in ((METHODS, known), (architectures._BUILDERS, networks)):
        table.clear()
        table.update(before)
    for name in set(sys.modules) - modules:
        if "my_method" in name:
            del sys.modules[name]


def forget(place: Path) -> None:
    """As a new process would start."""
    METHODS.pop("unsure")
    architectures._BUILDERS.pop("pooled")
    del sys.modules[str(place / "my_method.py")]


def test_it_is_explained_trained_and_evaluated(prood, place) -> None:
    code, out, _ = prood("recipes", place / "mine.toml")
    assert code == 0
    assert 'modules = ["my_method.py"]' in out
    shown = out.partition("[train.unsure]")[2]
    assert "weight = 0.5" in shown
    assert "# of the outliers' part of the loss" in shown
    assert "# that weight grows linearly" in shown
    code, _, err = prood("train", "unsure", "--recipe", place / "mine.toml", "--run", place / "run", "--device", "cpu")
    assert code == 0, err
    recipe = json.loads((place / "run" / "recipe.json").read_text())
    assert (recipe["method"], recipe["modules"]) == ("unsure", ["my_method.py"])
    assert (recipe["train"]["weight"], recipe["train"]["weight_ramp"]) == (0.5, 1.0)
    assert "loss_out" in (place / "run" / "metrics.jsonl").read_text()
    evaluate = ["evaluate", place / "run", "--device", "cpu", "--attacks", "none"]
    forget(place)
    code, _, err = prood(*evaluate)
    assert code == 2, "what a run's own files name is not imported"
    assert "--module" in err
    assert "pooled" in err
    code, out, err = prood(*evaluate, "--module", place / "my_method.py")
    assert code == 0, err
    assert (place / "run" / "results.json").is_file()


def test_without_a_recipe_that_names_it_the_option_does(prood, place) -> None:
    text = (place / "mine.toml").read_text().replace('modules = ["my_method.py"]', "")
    (place / "bare.toml").write_text(text)
    train = ["train", "unsure", "--recipe", place / "bare.toml", "--run", place / "run", "--device", "cpu"]
    code, _, err = prood(*train)
    assert code == 2
    assert "unsure" in err
    assert not (place / "run").exists()
    code, out, _ = prood("recipes", place / "bare.toml", "--module", place / "my_method.py")
    assert code == 0
    assert "[train.unsure]" in out
    code, _, err = prood(
        *train, "--module", place / "my_method.py", "--set", "train.epochs=0.5", "--set", "train.weight_ramp=0.25"
    )
    assert code == 0, err
    assert json.loads((place / "run" / "recipe.json").read_text())["modules"] == [str(place / "my_method.py")]


@pytest.mark.slow
def test_it_is_compared(prood, place) -> None:
    """It has a row of its own, by the title that it declares."""
    text = (place / "mine.toml").read_text().replace('modules = ["my_method.py"]', "")
    (place / "bare.toml").write_text(text)
    words = ["compare", "--recipe", place / "bare.toml", "--out", place / "all", "--device", "cpu", "--limit", "2"]
    code, out, err = prood(*words, "--methods", "unsure", "--module", place / "my_method.py")
    assert code == 0, err
    assert "Unsure" in out
    rows = json.loads((place / "all" / "compare.json").read_text())["rows"]
    assert [(row["run"], row["title"]) for row in rows] == [("plain", "Plain"), ("oe", "OE"), ("unsure", "Unsure")]


@pytest.mark.slow
def test_it_is_a_row_of_a_comparison(prood, place) -> None:
    compare = ["compare", "--recipe", place / "mine.toml", "--out", place / "compared", "--device", "cpu"]
    code, out, err = prood(*compare, "--methods", "unsure")
    assert code == 0, err
    assert "Unsure" in out
    rows = json.loads((place / "compared" / "compare.json").read_text())["rows"]
    assert [row["title"] for row in rows] == ["Plain", "OE", "Unsure"]
    assert (place / "compared" / "unsure" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("train.wieght=1", "did you mean 'weight'?"),
        ("train.weight=heavy", "weight = 'heavy' must be of type float"),
        ("train.weight=-1", "weight must be at least 0, not -1"),
        ("train.weight_ramp=inf", "weight_ramp must be a finite number"),
    ],
)
def test_wrong_options_are_refused_in_one_line(prood, place, setting: str, said: str) -> None:
    recipe = ["--recipe", place / "mine.toml", "--run", place / "run", "--device", "cpu"]
    code, _, err = prood("train", "unsure", *recipe, "--set", setting)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
    assert not (place / "run").exists()


def test_a_module_may_be_found_by_name_beside_the_recipe(place) -> None:
    file = place / "mine.toml"
    file.write_text(file.read_text().replace("my_method.py", "my_method"))
    assert load_recipe(str(file)).method("unsure").title == "Unsure"
    assert load_recipe(str(file)).method("unsure").weight == 0.5  # a second time, too


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_package_anywhere", "no_such_package_anywhere"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_module_that_fails_is_one_line_and_is_tried_again(place, text: str, said: str) -> None:
    (place / "my_method.py").write_text(text)
    for _ in range(2):
        with pytest.raises(BadValue, match=said) as error:
            load_recipe(str(place / "mine.toml"))
        assert "\n" not in str(error.value)
    (place / "my_method.py").write_text(MODULE)
    assert "unsure" in load_recipe(str(place / "mine.toml")).train


def test_a_module_that_is_not_there_is_named(tmp_path) -> None:
    for name in ("missing.py", "no_such_module_here", "no_such.module_here"):
        with pytest.raises(NotFound, match=name.split(".")[0]):
            load_modules([name], tmp_path)


def declared(**changes: object) -> type:
    words = {"name": "mine", "title": "Mine", "summary": "a method"} | changes
    return type("Mine", (Objective,), {key: value for key, value in words.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"title": None}, BadValue, "declare title"),
        ({"name": None, "summary": None}, BadValue, "declare name and summary"),
        ({"name": "My Method"}, BadValue, "word in lower case"),
        ({"name": "classifier"}, BadValue, "classifier"),
        ({}, BadValue, "dataclass"),
    ],
)
def test_a_half_declared_method_is_refused(changes, error, said: str) -> None:
    with pytest.raises(error, match=said):
        register(declared(**changes))
    assert "mine" not in METHODS


def test_options_need_a_default_and_a_meaning() -> None:
    from dataclasses import make_dataclass

    words = {"name": "mine", "title": "Mine", "summary": "a method"}
    for options in ([("weight", float, 1.0)], [("weight", float)]):
        kind = make_dataclass("Mine", options, bases=(), namespace=words, frozen=True)
        with pytest.raises(BadValue):
            register(kind)
    kind = make_dataclass("Mine", [("weight", float, option(1.0, "how heavy"))], namespace=words, frozen=True)
    try:
        assert register(kind) is kind
        assert register(kind) is kind  # a module that is imported again
    finally:
        METHODS.pop("mine", None)


def test_a_taken_name_is_refused(place) -> None:
    (place / "my_method.py").write_text(MODULE.replace('"unsure"', '"oe"'))
    with pytest.raises(AlreadyThere, match="'oe'"):
        load_recipe(str(place / "mine.toml"))
    assert METHODS["oe"].title == "OE"


def test_installed_packages_bring_their_methods(place, monkeypatch) -> None:
    """By an entry point, as `pip install` writes it."""
    monkeypatch.syspath_prepend(str(place))
    info = place / "unsure-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: unsure\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prood.methods]\nunsure = my_method\n")
    text = (place / "mine.toml").read_text().replace('modules = ["my_method.py"]', "")
    (place / "mine.toml").write_text(text)
    load_installed.cache_clear()
    try:
        assert load_recipe(str(place / "mine.toml")).method("unsure").title == "Unsure"
        METHODS.pop("unsure")
        sys.modules.pop("my_method")
        shutil.copy(place / "others.npz", place / "my_method.py")
        load_installed.cache_clear()
        with pytest.raises(BadValue):
            load_recipe("quickstart")
    finally:
        load_installed.cache_clear()


def test_an_unknown_method_lists_the_known_ones(prood, tmp_path) -> None:
    code, _, err = prood("train", "pord", "--run", tmp_path / "run")
    assert code == 2
    for name in METHODS:
        assert name in err
    with pytest.raises(UnknownName):
        load_recipe("quickstart").method("pord")
