"""A recipe on folders as they come: photographs of all sizes, one of them damaged, and no outliers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prood.data import made_outliers, open_set
from prood.data.stored import joined
from prood.errors import BadValue, Damaged, Mismatch
from prood.evaluation import evaluate_run
from prood.models import load
from prood.training import held_back, train
from prood.training.recipe import Recipe, load_recipe
from prood.training.trainer import training_set

RECIPE = """
[data]
inside = "folder:{place}/photos/train"
outside = "made:60"
image = [3, 12, 12]
damaged = "skip"
held_back = 8
[networks.classifier]
name = "small"
width = 4
[networks.discriminator]
size = "digits"
[evaluate]
outside = ["made:20", "folder:{place}/others/test"]
eps = [0.05]
[train.oe]
epochs = 1
batch = 10
lr = 0.01
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    random = np.random.default_rng(0)
    for split in ("photos/train", "photos/test", "others/test"):
        for number in range(30):
            size = tuple(random.integers(10, 40, 2).tolist())
            level = 60 + 120 * (number % 2)
            pixels = random.integers(level - 50, level + 50, (*size, 3), dtype=np.uint8)
            path = tmp_path / split / ("dark", "light")[number % 2] / "deeper" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    (tmp_path / "photos/train/dark/damaged.jpg").write_bytes(b"no picture")
    (tmp_path / "mine.toml").write_text(RECIPE.format(place=tmp_path))
    return load_recipe(str(tmp_path / "mine.toml"))


def test_it_is_trained_and_evaluated_at_the_size_of_the_recipe(recipe: Recipe, tmp_path: Path) -> None:
    train("oe", recipe, tmp_path / "run", device="cpu")
    _, about = load(tmp_path / "run")
    assert about.classes == ["dark", "light"]
    found = evaluate_run(tmp_path / "run", attacks=None, limit=15, device="cpu")
    assert {one.inside for one in found} == {f"folder:{tmp_path}/photos/test"}
    assert [(one.outside, one.images) for one in found] == [("made:20", 15), (f"folder:{tmp_path}/others/test", 15)]
    inside, outside = held_back(recipe)
    assert inside.shape == outside.shape == (3, 12, 12)
    assert (len(inside), len(outside)) == (8, 8)


def test_made_outliers_are_made_of_what_is_trained_on_alone(recipe: Recipe) -> None:
    inside = training_set(recipe.data.inside, recipe)
    outside = training_set(recipe.data.outside, recipe, like=inside).load()
    expected = open_set("made:60", like=inside, split="train")
    assert torch.equal(outside.images, expected.divided(8, seed=0)[0].load().images)
    patterns = made_outliers((3, 12, 12), 60, 0).load().images
    assert not any((patterns == image).flatten(1).all(1).any() for image in outside.images)  # what a test is made of


def test_patterns_are_trained_against_beside_the_photographs(recipe: Recipe, tmp_path: Path) -> None:
    others = f"folder:{tmp_path}/others/test"
    with_patterns = replace(recipe, data=replace(recipe.data, held_back=0, outside=others, patterns=25))
    without = replace(with_patterns, data=replace(with_patterns.data, patterns=0))
    inside, alone = (training_set(name, without) for name in (recipe.data.inside, others))
    outside = training_set(others, with_patterns, like=inside)
    assert len(training_set(recipe.data.inside, with_patterns)) == len(inside)
    assert (outside.name, len(outside)) == (alone.name, len(alone) + 25)
    read = outside.take(range(len(outside)))
    made = made_outliers((3, 12, 12), 25, 2**32).load().images
    assert torch.equal(read[len(alone) :], made)
    in_memory = joined(alone.load(), outside)
    twice = in_memory.select(range(len(alone), len(in_memory)))
    for same in (outside.prepared(often=True), outside.load(), twice):
        assert torch.equal(same.take(range(len(read))), read)
    assert torch.equal(outside.select([len(read) - 1, 0]).load().images, read[[-1, 0]])
    assert outside.fingerprint() != alone.fingerprint()


def test_a_run_of_a_version_without_these_keys_goes_on(recipe: Recipe, tmp_path: Path) -> None:
    import json

    pictures = open_set(recipe.data.inside, shape=recipe.data.shape, damaged="skip").load()
    np.savez(tmp_path / "train.npz", images=pictures.images.numpy(), labels=pictures.labels.numpy())
    plain = replace(recipe.data, inside=f"npz:{tmp_path}/train.npz", outside="uniform", image=(), damaged="refuse")
    recipe = replace(recipe, data=plain)
    train("oe", recipe, tmp_path / "run", device="cpu")
    settings = json.loads((tmp_path / "run" / "recipe.json").read_text())
    del settings["image"], settings["damaged"], settings["patterns"]
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(settings))
    train("oe", recipe, tmp_path / "run", device="cpu", resume=True)
    with pytest.raises(Mismatch, match="image"):
        train("oe", replace(recipe, data=replace(plain, image=(3, 9, 9))), tmp_path / "run", device="cpu", resume=True)


def test_what_the_recipe_does_not_say_is_asked_for(recipe: Recipe, tmp_path: Path) -> None:
    for change, kind, said in (
        ({"damaged": "refuse"}, Damaged, r"1 of 31 .*dark/damaged\.jpg.*damaged = \"skip\""),
        ({"image": ()}, Mismatch, r"data\.image = \[3, 64, 64\]"),
    ):
        with pytest.raises(kind, match=said.replace(r"\"", '"')):
            train(
                "oe", replace(recipe, data=replace(recipe.data, held_back=0, **change)), tmp_path / "run", device="cpu"
            )
    for image in ((3, 64), (4, 8, 8), (3, 0, 8)):
        with pytest.raises(BadValue, match="height and width"):
            replace(recipe.data, image=image)
