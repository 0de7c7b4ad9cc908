"""The quickstart from end to end, on its real data, with a recipe cut down to a few steps."""

import json

import pytest
from rich.console import Console

from prood import ProodError, data, load, load_recipe
from prood.quickstart import FAR, INSIDE, NEAR, quickstart

SETS = [name.partition(":")[0] for name in FAR + NEAR]


@pytest.fixture(scope="module")
def short():
    recipe = load_recipe("quickstart")
    for method in recipe.train:
        settings = ["train.epochs=0.25", "train.decay_from=0.1", "train.batch=100"]
        recipe = recipe.with_settings(method, settings)
    return recipe


def test_quickstart_writes_the_table_that_it_prints_and_loses_nothing_when_interrupted(short, tmp_path):
    class Interrupted(Console):
        def print(self, *objects, **options):
            super().print(*objects, **options)
            if "oe" in str(objects):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quickstart(tmp_path / "q", recipe=short, console=Interrupted(quiet=True))
    first = (tmp_path / "q" / "oe" / "model.safetensors").read_bytes()
    assert not (tmp_path / "q" / "results.json").exists()

    console = Console(record=True, width=160, quiet=False)
    quickstart(tmp_path / "q", recipe=short, console=console)
    assert (tmp_path / "q" / "oe" / "model.safetensors").read_bytes() == first

    results = json.loads((tmp_path / "q" / "results.json").read_text())
    assert results["in_distribution"] == "digits:test"
    assert results["eps"] == 0.3
    assert list(results["models"]) == ["Plain", "OE", "ProoD-Disc", "ProoD-S", "ProoD"]
    printed = console.export_text()
    for name, model in results["models"].items():
        assert name in printed
        assert list(model["out"]) == SETS
        for values in model["out"].values():
            assert 0 <= values["gauc"] <= values["auc"] <= 1
            if name in ("Plain", "OE"):
                assert values["gauc"] == 0
    assert results["models"]["ProoD-Disc"]["accuracy"] is None
    assert results["models"]["ProoD-S"]["accuracy"] == results["models"]["OE"]["accuracy"]
    assert load(tmp_path / "q" / "prood").shift == short.shift

    with pytest.raises(ProodError, match="other settings"):
        quickstart(tmp_path / "q", recipe=short, seed=99, console=Console(quiet=True))


def test_no_test_image_was_seen_in_training():
    recipe = load_recipe("quickstart")
    inside = data.load(INSIDE)
    seen = {image.numpy().tobytes() for name in (recipe.inside, recipe.outside) for image in data.load(name).images}
    for name in (INSIDE, *FAR, *NEAR):
        tested = {image.numpy().tobytes() for image in data.load(name, like=inside).images}
        assert not tested & seen, name
