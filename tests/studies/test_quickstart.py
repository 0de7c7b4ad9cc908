"""The quickstart from end to end, on its real data, with a recipe cut down to a few steps."""

import pytest
from rich.console import Console

from prood import Detector, data, load, load_recipe
from prood.errors import Mismatch
from prood.evaluation import read_results
from prood.models import read_metadata
from prood.studies import known, quickstart
from prood.studies.known import CALIBRATION, CERTIFIED_ONLY, FAR, INSIDE, NEAR


@pytest.fixture(scope="module")
def short():
    recipe = load_recipe("quickstart")
    for method in recipe.train:
        settings = ["train.epochs=0.25", "train.decay_from=0.1", "train.batch=100"]
        settings += [f"train.{key}=0.1" for key in recipe.resolved(method)["train"] if key.endswith("_ramp")]
        recipe = recipe.with_settings(method, settings)
    return recipe


@pytest.mark.slow
def test_quickstart_writes_what_it_prints_and_loses_nothing_when_interrupted(short, tmp_path, monkeypatch):
    monkeypatch.setattr(known, "LIMIT", 15)

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

    results = read_results(tmp_path / "q")
    assert results.facts["shift"] == short.shift
    models = ["Plain", "OE", "ProoD-Disc", "ProoD-S", "ProoD"]
    settings = [(one.model, one.outside, one.eps) for one in results if one.attacks]
    assert settings == [(model, name, 0.3) for model in models for name in FAR + NEAR]
    assert {one.eps for one in results} == {0.3, *CERTIFIED_ONLY}
    assert "accepts 95% of digits:validation" in console.export_text()
    for one in results:
        assert 0 <= one.gauc <= one.auc <= 1
        if one.model in ("Plain", "OE"):
            assert one.gauc == 0
        if one.attacks:
            assert one.gauc <= one.aauc <= one.auc
            assert one.attacks == "fast"
        assert one.inside == "digits:test"
    at = {one.model: one.accuracy for one in results}
    assert at["ProoD-Disc"] is None
    assert at["ProoD-S"] == at["OE"]
    assert load(tmp_path / "q" / "prood").shift == short.shift
    for name in ("prood", "prood-s"):
        detector = Detector.load(tmp_path / "q" / name)
        assert len(detector.calibration) == len(data.load(CALIBRATION))
        assert detector.threshold == detector.calibration.threshold
        assert detector.predict(data.load(CALIBRATION)).accepted.mean() >= 0.95
        about = read_metadata(tmp_path / "q" / name)
        assert (about.threshold, about.tpr, about.eps) == (detector.threshold, 0.95, 0.3)
        assert about.classes == list("01234567")
        assert "digits:train" in about.data

    with pytest.raises(Mismatch):
        quickstart(tmp_path / "q", recipe=short, seed=99, console=Console(quiet=True))


def test_no_test_image_was_seen_in_training():
    recipe = load_recipe("quickstart")
    inside = data.load(INSIDE)
    trained_on = [data.load(name, split="train") for name in (recipe.data.inside, recipe.data.outside)]
    seen = {image.numpy().tobytes() for images in trained_on for image in images.images}
    for name in (INSIDE, CALIBRATION, *FAR, *NEAR):
        tested = {image.numpy().tobytes() for image in data.load(name, like=inside).images}
        assert not tested & seen, name


def test_the_threshold_comes_from_no_test_image():
    tested = {image.numpy().tobytes() for image in data.load(INSIDE).images}
    assert not tested & {image.numpy().tobytes() for image in data.load(CALIBRATION).images}
