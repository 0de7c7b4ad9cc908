import json
from pathlib import Path

import pytest
from rich.console import Console

from prood.detector import Detector
from prood.errors import Damaged, NotFound, ProodError
from prood.models import Gate, Gated, load, save
from prood.training import Recipe, Run, combine, describe, load_recipe, train


@pytest.fixture(scope="module")
def runs(toml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("described")
    recipe = load_recipe(str(toml))
    for method in ("oe", "discriminator"):
        short = recipe.with_settings(method, ["train.epochs=0.5"])
        train(method, short, folder / method, device="cpu", console=Console(quiet=True))
    combine(folder / "oe", folder / "discriminator", folder / "joint", shift=1.0)
    return folder


def test_a_classifier(runs: Path, recipe: Recipe) -> None:
    facts = describe(runs / "oe")
    model, about = load(runs / "oe")
    assert facts["file"] == str(runs / "oe" / "model.safetensors")
    assert facts["model"] == "classifier"
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert facts["architecture"] == {"name": "small", "classes": 4, "width": 4}
    assert facts["classes"] == ["0", "1", "2", "3"]
    assert facts["data"] == about.data
    assert facts["settings"]["train"]["epochs"] == 0.5
    assert facts["training"]["step"] == 2
    assert "ceiling" not in facts
    assert "eps" not in facts
    json.dumps(facts)


def test_a_discriminator_says_its_ceiling(runs: Path) -> None:
    facts = describe(runs / "discriminator")
    model, _ = load(runs / "discriminator")
    assert facts["model"] == "discriminator"
    assert facts["eps"] == 0.05
    assert 0 <= float(facts["ceiling"].removeprefix("g never exceeds ")) - model.ceiling < 1e-4  # rounded up
    assert "status" not in facts


def test_a_joint_model_says_the_confidence_that_nothing_exceeds(runs: Path) -> None:
    facts = describe(runs / "joint")
    model, _ = load(runs / "joint")
    assert facts["model"] == "joint model"
    assert facts["shift"] == 1.0
    stated = float(facts["ceiling"].rpartition(" ")[2])
    assert 0 <= stated - model.ceiling(4) < 1e-4  # type: ignore[operator]  # rounded up, as it is a bound
    assert "training" not in facts


def test_a_gated_model_says_where_g_alone_rejects(runs: Path, tmp_path: Path) -> None:
    joint = load(runs / "joint")[0]
    gated = Gated(joint.classifier, joint.discriminator, Gate((-1.0, 2.0), (-3.0, 1.0)), 1.0)  # type: ignore[arg-type]
    about = {"classes": ["a", "b", "c", "d"], "threshold": 0.7}
    save(gated, tmp_path / "model.safetensors", **about)  # type: ignore[arg-type]
    facts = describe(tmp_path)
    assert facts["model"] == "gated joint model"
    detector = Detector.load(tmp_path)
    stated = float(facts["gate"].partition("below ")[2].partition(" ")[0])
    assert stated == pytest.approx(detector.p_in_threshold, rel=1e-3)
    assert "2 knots" in facts["gate"]
    save(gated, tmp_path / "free.safetensors")
    assert "0." not in describe(tmp_path / "free.safetensors")["gate"], "the file states no threshold"
    assert "gate" not in describe(runs / "joint")


def test_a_file_by_itself(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    file.write_bytes((runs / "oe" / "model.safetensors").read_bytes())
    facts = describe(str(file))
    assert facts["file"] == str(file)
    assert "training" not in facts


def test_a_run_that_has_not_ended_says_how_far_it_came(tmp_path: Path, recipe: Recipe) -> None:
    run = Run(tmp_path)
    run.open(recipe.resolved("oe"), resume=False)
    assert set(describe(tmp_path)) == {"status", "settings"}
    run.log({"step": 30, "loss": 0.5})
    with run.metrics.open("a") as file:
        file.write('{"step": 40, "lo')
    facts = describe(tmp_path)
    assert "not finished: continue it with --resume" in facts["status"]
    assert facts["training"] == {"step": 30, "loss": 0.5}
    assert facts["settings"]["method"] == "oe"


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ProodError, match="is not a run: it holds neither a model nor a recipe"):
        describe(tmp_path)
    with pytest.raises(NotFound):
        describe(tmp_path / "nowhere")
    (tmp_path / "photo.png").write_bytes(b"PNG")
    with pytest.raises(Damaged):
        describe(tmp_path / "photo.png")
