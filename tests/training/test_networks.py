"""What a method trains: the recipe's classifier, a network of its own, or a model around either; and its score."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

from prood.cli import app
from prood.data import load as load_images
from prood.errors import ProodError, Unsupported
from prood.evaluation import evaluate
from prood.methods import METHODS
from prood.models import Confidence, Score, load, score_of, small
from prood.models.architectures import takes
from prood.models.baselines import Energy, EnergyClassifier
from prood.models.certified import CertifiedClassifier, CertifiedConfidence
from prood.models.mixture_classifier import MixtureClassifier, MixtureConfidence
from prood.models.score import scores
from prood.training import Recipe, combine, explain_recipe, load_recipe, train
from prood.training.recipe import parse
from prood.training.update import Update

OWN = '\n[networks.good]\nname = "certified-classifier"\nsize = "digits"\n'
TABLES = """
[train.ccu]
epochs = 3
batch = 24
lr = 0.01
components = 3
fit_images = 48
floor = 0.01
checkpoint_seconds = 0

[train.eb]
epochs = 3
batch = 24
lr = 0.01
checkpoint_seconds = 0

[train.good]
epochs = 3
batch = 24
lr = 0.01
eps = 0.05
eps_ramp = 0.25
checkpoint_seconds = 0
"""
KINDS: dict[str, tuple[type[nn.Module], type[Score]]] = {
    "ccu": (MixtureClassifier, MixtureConfidence),
    "eb": (EnergyClassifier, Energy),
    "good": (CertifiedClassifier, CertifiedConfidence),
}


@pytest.fixture(scope="module")
def baselines(toml: Path) -> Recipe:
    document = tomllib.loads(toml.read_text() + OWN + TABLES)
    return parse(document, "toy")


def fit(method: str, recipe: Recipe, folder: Path, **options: Any) -> nn.Module:
    return train(method, recipe, folder, device="cpu", console=Console(quiet=True), **options)


@pytest.fixture(scope="module")
def runs(baselines: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for method in (*KINDS, "discriminator"):
        fit(method, baselines, folder / method)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", KINDS)
def test_a_run_holds_the_methods_own_model_with_its_score(method: str, runs: Path, toml: Path) -> None:
    model, about = load(runs / method)
    kind, score = KINDS[method]
    assert type(model) is kind
    assert type(score_of(model)) is score
    assert about.classes == ["0", "1", "2", "3"]
    assert about.eps == (0.05 if method == "good" else None)
    inside, outside = (load_images(f"npz:{toml.parent / name}.npz") for name in ("inside", "outside"))
    logits = score_of(model).logits(inside.floats())
    assert logits is not None
    assert logits.shape == (96, 4)
    assert torch.equal(model(inside.floats()).argmax(1), logits.argmax(1))  # as a classifier it is a drop-in
    results = evaluate(model, inside=inside, outside={"ramps": outside}, eps=0.02, attacks="fast", limit=6)
    found = results["model", "ramps", 0.02]
    assert found.accuracy == (logits.argmax(1) == inside.labels).double().mean().item()
    assert found.aauc is not None
    assert found.gauc <= found.aauc <= found.auc


@pytest.mark.parametrize("method", KINDS)
def test_a_killed_run_ends_with_the_same_weights(
    method: str, runs: Path, baselines: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Update.__call__
    calls = 0

    def dying(self: Update, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 7:
            raise KeyboardInterrupt
        made(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Update, "__call__", dying)
        with pytest.raises(KeyboardInterrupt):
            fit(method, baselines, tmp_path / "run")
    again = fit(method, baselines, tmp_path / "run", resume=True)
    expected = load(runs / method)[0].state_dict()
    for name, value in again.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_the_mixtures_are_fitted_before_training(runs: Path, baselines: Recipe, tmp_path: Path) -> None:
    short = baselines.with_settings("ccu", ["train.epochs=0.01", "train.lr=1e-30"])  # one step, that moves nothing
    model = fit("ccu", short, tmp_path / "run")
    assert isinstance(model, MixtureClassifier)
    assert not torch.equal(model.ratio.matrix, torch.eye(64))
    assert model.ratio.inside.centres.abs().sum() > 0


@pytest.mark.parametrize("method", ["eb", "good", "ccu"])
def test_it_can_be_guarded_like_any_classifier(method: str, runs: Path, tmp_path: Path) -> None:
    model = combine(runs / method, runs / "discriminator", tmp_path / "run", shift=1.0)
    images = torch.rand(3, 1, 8, 8)
    alone, _ = load(runs / method)
    assert torch.equal(model.predict(images), alone(images).argmax(1))


def test_a_method_trains_its_own_network_where_the_recipe_has_one(baselines: Recipe) -> None:
    assert baselines.network("good") == {"name": "certified-classifier", "size": "digits"}
    assert baselines.network("eb") == baselines.classifier
    assert baselines.network("discriminator") == baselines.discriminator
    assert baselines.resolved("good")["classifier"]["name"] == "certified-classifier"
    assert baselines.resolved("eb")["classifier"]["name"] == "small"
    changed = baselines.with_settings("good", ["networks.good.size=XL", "networks.eb.name=resnet18"])
    assert changed.network("good")["size"] == "XL"
    assert changed.network("eb") == {"name": "resnet18"}
    assert baselines.network("good")["size"] == "digits"


def test_networks_of_methods_are_explained(baselines: Recipe) -> None:
    text = explain_recipe(baselines)
    assert 'good = {name = "certified-classifier", size = "digits"}' in text
    assert "# what good trains instead of the classifier" in text
    assert parse(tomllib.loads(text), "toy").own_networks == baselines.own_networks


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[networks.best]\nname = "small"\n', r"unknown key 'best' in \[networks\]"),
        ("[networks]\ngood = 3\n", "'good' in a recipe must be a table"),
    ],
)
def test_networks_of_nobody_are_refused(toml: Path, table: str, message: str) -> None:
    document = tomllib.loads(toml.read_text())
    document["networks"] |= tomllib.loads(table)["networks"]
    with pytest.raises(ProodError, match=message):
        parse(document, "toy")


def test_good_without_a_network_with_bounds_is_refused_before_a_folder_is_made(toml: Path, tmp_path: Path) -> None:
    recipe = parse(tomllib.loads(toml.read_text() + TABLES), "toy")
    with pytest.raises(Unsupported, match=r"GOOD.*'small'"):
        fit("good", recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["quickstart", "cifar10-fast", "cifar100-fast"])
def test_the_baselines_of_the_shipped_recipes(name: str) -> None:
    recipe = load_recipe(name)
    radius = recipe.method("discriminator").eps  # type: ignore[attr-defined]
    assert recipe.resolved("good")["train"]["eps"] == radius
    assert recipe.network("good")["name"] == "certified-classifier"
    for method in KINDS:
        assert json.dumps(recipe.resolved(method))


def test_the_command_line_knows_every_method_and_explains_it() -> None:
    shown = " ".join(CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output.split())
    for method, kind in METHODS.items():
        assert f"{method}: {kind.summary}." in shown


def test_a_builder_says_what_it_takes() -> None:
    assert takes({"name": "certified-classifier"}, "image")
    assert takes({"name": "small"}, "classes")
    assert not takes({"name": "small"}, "image")
    assert not takes({"name": "no such thing"}, "image")


def test_a_score_belongs_to_a_class_and_to_those_made_from_it() -> None:
    class Mine(nn.Sequential):
        pass

    class Heirs(Mine):
        pass

    @scores(Mine)
    class First(Confidence):
        """Of a model of one's own."""

    assert type(score_of(Mine(small(2)))) is First
    assert type(score_of(Heirs(small(2)))) is First
    assert type(score_of(small(2))) is Confidence
