"""Labs: what is trained, what is taken as it is, and what is published."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prood import data, processes
from prood.errors import BadValue, NotFound, UnknownName
from prood.models import ProoD, fingerprint, load
from prood.studies import Runner, making, study_of
from prood.studies.published import method_of
from prood.training import held_back

CHEAP = ("plain", "oe", "discriminator", "prood-s", "prood")


def times(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in sorted(folder.rglob("*")) if file.is_file()}


# Trained models


def test_a_run_is_trained_once(trained):
    before = times(trained.folder)
    assert {trained.run(run) for run in CHEAP} == {trained.folder / run for run in CHEAP}
    assert times(trained.folder) == before


def test_joint_models_hold_the_parts_of_the_lab(trained):
    parts = {run: load(trained.run(run))[0] for run in CHEAP}
    for run in ("prood", "prood-s"):
        assert isinstance(parts[run], ProoD)
        assert fingerprint(parts[run].discriminator) == fingerprint(parts["discriminator"])
        assert float(parts[run].shift) == trained.recipe.shift == 1.0
    assert fingerprint(parts["prood-s"].classifier) == fingerprint(parts["oe"])
    assert fingerprint(parts["prood"].classifier) != fingerprint(parts["oe"])


def test_every_seed_has_a_folder_of_its_own(trained):
    first, second = (load(trained.run("oe", seed)) for seed in (0, 1))
    assert trained.place("oe", 1) == trained.folder / "seed-1" / "oe"
    assert [about.seed for _, about in (first, second)] == [0, 1]
    assert fingerprint(first[0]) != fingerprint(second[0])
    assert trained.models["oe-1"] == fingerprint(second[0]) == trained.weights("oe", 1)


def test_a_nodes_settings_and_its_seed_reach_its_recipe(trained):
    node = replace(trained.study.node("oe"), settings=("train.epochs=7", "networks.classifier.width=2"))
    recipe = trained.recipe_of(node, 5)
    assert (recipe.options("oe").epochs, recipe.options("oe").seed, recipe.classifier["width"]) == (7, 5, 2)
    assert recipe.options("plain") == trained.recipe.options("plain")


def test_what_must_not_be_trained_is_said(trained, runner_in, tmp_path):
    with pytest.raises(UnknownName, match="'prod'"):
        trained.run("prod")
    runner = runner_in(tmp_path, training=False)
    with pytest.raises(NotFound, match=r"'oe'.*GPU.*--train"):
        runner.run("oe")
    assert runner.published("oe") is None
    assert not runner.models
    assert not list(tmp_path.iterdir())


def test_the_quickstart_has_a_shorter_robust_training(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(making, "train", lambda method, recipe, folder, **_: asked.update({method: recipe}))
    monkeypatch.setattr(Runner, "weights", lambda self, run, seed: "0")
    runner = Runner(study_of("quickstart"), tmp_path)
    for run in ("robust", "oe"):
        runner.run(run)
    assert asked["robust"].options("robust").epochs < runner.recipe.options("robust").epochs
    assert asked["oe"].options("oe") == runner.recipe.options("oe")


# Images


def test_the_images_are_those_that_evaluations_take(trained):
    certified = [one for one in trained.published("oe").evaluations if not one.attacks and one.eps == 0.06]
    assert {one.fingerprints["inside"] for one in certified} == {trained.inside().fingerprint()}
    sets = list(trained.outside().values())
    assert [len(images) for images in sets] == [6, 6]
    assert [images.fingerprint() for images in sets] == [one.fingerprints["outside"] for one in certified]


def test_the_in_distribution_is_the_test_set_beside_the_one_trained_on(trained, tiny):
    train, test = (data.load(f"npz:{tiny.parent}/squares/{split}.npz") for split in ("train", "test"))
    assert trained.inside().fingerprint() == test.fingerprint() != train.fingerprint()
    assert {one.inside for one in trained.published("oe").evaluations} == {"squares"}


@pytest.mark.parametrize("inside", ["folder:{}/all", "npz:{}/squares.npz"])
def test_a_recipe_without_a_known_test_set_is_refused_at_once(tiny, tmp_path, inside):
    recipe = tmp_path / "own.toml"
    text = tiny.read_text().replace(f"npz:{tiny.parent}/squares/train.npz", inside.format(tmp_path))
    recipe.write_text(text)
    with pytest.raises(BadValue, match="'own'"):
        Runner(study_of(str(recipe)), tmp_path)


def test_held_back_images_are_the_recipes_or_those_for_validation(trained, tmp_path):
    for one, other in zip(trained.held_back(), held_back(trained.recipe), strict=True):
        assert len(one) == 10
        assert one.fingerprint() == other.fingerprint()
    inside, outside = Runner(study_of("quickstart"), tmp_path).held_back()
    assert (inside.name, outside.name) == ("digits:validation", "photographs:validation")


# What is published


def test_a_model_is_certified_on_all_images_and_attacked_on_some(trained):
    found = trained.published("prood")
    assert (found.title, found.outside, found.seed, found.command) == ("ProoD", "ramps", 0, "prood reproduce")
    planned = [(one.images, one.attacks) for one in found.evaluations if one.eps == 0.06]
    assert planned == [(6, None), (6, None), (3, "fast"), (3, "fast")]
    assert {method_of(one) for one in found.evaluations} == {"best"}
    assert found.sets == ("ramps", "uniform")
    assert found.weights == fingerprint(load(trained.run("prood"))[0])


def test_what_is_published_is_left_alone_until_there_is_more(trained):
    file, found = trained.file("plain"), trained.published("plain")
    before = file.stat().st_mtime_ns
    trained.published("plain")
    assert file.stat().st_mtime_ns == before
    more = trained.published("plain", eps=[0.01], attack=False)
    added = [one for one in more.evaluations if one not in found.evaluations]
    assert [(one.eps, one.attacks) for one in added] == [(0.01, None), (0.01, None)]
    assert file.stat().st_mtime_ns != before
    assert trained.published("plain") == more


@pytest.mark.parametrize("main", [True, False])
def test_every_process_waits_whether_or_not_there_is_news(trained, monkeypatch, main):
    waited = []
    trained.published("plain")
    monkeypatch.setattr(processes, "is_main", lambda: main)
    monkeypatch.setattr(processes, "barrier", lambda: waited.append(1))
    monkeypatch.setattr(making, "evaluate_run", lambda *run, **options: [])
    trained.published("plain", attack=False)
    assert waited == [1]


def test_less_than_was_published_replaces_nothing(trained, runner_in, tmp_path):
    """The model is here, but not all of its evaluations are."""
    for name in ("runs", "results"):
        shutil.copytree(trained.folder.parent / name, tmp_path / name)
    runner = runner_in(tmp_path, attacks=None)
    (runner.place("oe") / "results.json").unlink()
    assert runner.published("oe") == trained.published("oe")


def test_a_model_that_changed_is_published_anew(trained, runner_in, tmp_path):
    runner = runner_in(tmp_path, attacks=None)
    for name in ("runs", "results"):
        shutil.copytree(trained.folder.parent / name, tmp_path / name)
    old = runner.published("oe").weights
    shutil.rmtree(runner.place("oe"))
    shutil.copytree(trained.run("oe", 1), runner.place("oe"))
    new = runner.published("oe")
    assert new.weights == trained.weights("oe", 1) != old
    assert {one.fingerprints["model"] for one in new.evaluations} == {new.weights}


def test_what_was_published_elsewhere_is_not_made_again(trained, runner_in, tmp_path):
    """There is no run here, and none is trained although that may be."""
    shutil.copytree(trained.results, tmp_path / "results")
    runner = runner_in(tmp_path)
    assert runner.may_train
    assert runner.published("oe") == trained.published("oe")
    assert not runner.folder.exists()
    assert runner.weights("oe") == trained.weights("oe")


# CIFAR


def test_cifar_is_trained_on_a_gpu_or_when_asked(tmp_path, monkeypatch):
    cifar = study_of("cifar10")
    runner = Runner(cifar, tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (runner.may_train, Runner(cifar, tmp_path, training=True).may_train) == (False, True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert (runner.may_train, Runner(cifar, tmp_path, training=False).may_train) == (True, False)
    assert (runner.against, runner.eps, runner.study.attacks) == ("cifar100", 0.01, "paper")


def test_the_chosen_shift_is_known_without_the_models(tmp_path):
    runner = Runner(study_of("cifar10"), tmp_path, results=tmp_path / "results", training=False)
    file = tmp_path / "results" / "cifar10" / "cifar100" / "discriminator" / "shift.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"chosen": 4}')
    joint = runner.study.node("prood-s")
    assert making.shift_of(runner, joint, 0) == 4.0
    assert [task.what for task in runner.making(["prood-s"], [1])] == ["make"] * 3  # none is chosen
    assert "choose" in [task.what for task in replace(runner, own_shifts=True).making(["prood-s"], [1])]


def test_the_papers_discriminator_has_a_recipe_of_its_own(tmp_path, monkeypatch):
    """And the joint models with it are made of it."""
    asked = {}

    def noted(method, recipe, folder, **options):
        asked[folder.name] = (method, recipe.name, options.get("discriminator"), options.get("shift"))
        folder.mkdir(parents=True)
        (folder / "model.safetensors").touch()

    def chosen(site, discriminator, seed):
        assert seed == 0
        site.shift_file(discriminator, seed).write_text(json.dumps({"chosen": 2.0}))

    monkeypatch.setattr(making, "train", noted)
    monkeypatch.setattr(making, "choose", chosen)
    monkeypatch.setattr(Runner, "weights", lambda self, run, seed: "0")
    runner = Runner(study_of("cifar10"), tmp_path, results=tmp_path / "results", training=True)
    for seed, folder in ((0, tmp_path), (1, tmp_path / "seed-1")):  # the shift is chosen once, with seed 0
        asked.clear()
        runner.run("prood-ibp", seed)
        assert asked | {"oe": None} == {
            "oe": None,
            "discriminator-ibp": ("discriminator", "cifar10-ibp", None, None),
            "prood-ibp": ("prood", "cifar10-fast", folder / "discriminator-ibp", 2.0),
        }


# What can go wrong


def test_a_lab_says_at_once_what_is_wrong(tmp_path, tiny):
    quick = study_of("quickstart")
    with pytest.raises(UnknownName, match="'papre'"):
        Runner(replace(quick, attacks="papre"), tmp_path)
    with pytest.raises(BadValue):
        Runner(quick, tmp_path, seeds=())
    with pytest.raises(BadValue):
        Runner(quick, tmp_path, seeds=(0, 0))
    text = tiny.read_text()
    (tmp_path / "mine.toml").write_text(text[: text.index("[evaluate]")] + text[text.index("[train.plain]") :])
    with pytest.raises(BadValue, match="'mine'"):
        Runner(study_of(str(tmp_path / "mine.toml")), tmp_path)
