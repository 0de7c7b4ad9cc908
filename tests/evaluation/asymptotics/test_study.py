"""All of it for one model, by name, and on the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from prood.cli import app
from prood.data import ImageSet
from prood.errors import ProodError
from prood.evaluation.asymptotics import (
    CURVE,
    SCHEDULES,
    Stage,
    far_away,
    mean_confidence,
    study,
    study_run,
    with_far_penalty,
)
from prood.models import Discriminator, Metadata, ProoD, discriminator, save, small
from prood.report.far import lines

SHAPE = (1, 28, 28)
SHORT = (Stage(100.0, 5, 2.0), Stage(1e6, 5, 1e4))


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCHEDULES, "far", SHORT)
        yield


def joint(off: bool = False) -> ProoD:
    """With `off`, no last unit grows in any direction: g stays at its cap far away."""
    torch.manual_seed(0)
    g = discriminator("digits", image=SHAPE)
    if off:
        with torch.no_grad():
            g.body[-1].weight.copy_(-g.body[-1].weight.abs())
    return ProoD(small(4, width=4), g, 1.0).eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = joint(off=True)
    save(model, tmp_path / "prood" / "model.safetensors")
    save(model.discriminator, tmp_path / "disc" / "model.safetensors")
    save(model.classifier, tmp_path / "plain" / "model.safetensors")
    with torch.no_grad():
        model.discriminator.last.log_weight[0, 0] = -150
    save(model.discriminator, tmp_path / "wrong" / "model.safetensors")
    return tmp_path


def call(*words: object) -> Result:
    small = ["--directions", "20", "--adversarial", "4", "--device", "cpu"]
    return CliRunner().invoke(app, ["asymptotics", *map(str, words), *small], env={"COLUMNS": "200"})


def noise(count: int = 12) -> ImageSet:
    torch.manual_seed(5)
    return ImageSet("noise", torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8), torch.arange(count) % 4)


def test_a_curve_has_25_distances() -> None:
    assert len(CURVE) == 25
    assert (CURVE[0], CURVE[-1]) == (0.1, 1e5)
    assert {1.0, 10.0, 100.0, 1000.0, 10000.0} <= set(CURVE)


def test_the_curve_of_means_is_that_of_far_away() -> None:
    model = joint()
    alphas = [0.0, 3.0, 1000.0]
    found = mean_confidence(model, noise(), alphas=alphas, seed=2)
    assert found == pytest.approx(far_away(model, noise(), noise(), alphas=alphas, seed=2).confidence, rel=1e-12)
    bare = mean_confidence(model.discriminator, noise(), alphas=[0.0])
    expected = model.discriminator(noise().floats()).double().sigmoid().mean().item()
    assert bare == pytest.approx((expected,), rel=1e-5)


def test_a_network_that_goes_to_rest_everywhere() -> None:
    found = study(joint(off=True), noise(), directions=20, adversarial=4, schedule=SHORT)
    assert found.theorem.holds  # the theorem is true, and says nothing here
    assert found.random["uniform"]["stays"] == found.random["gaussian"]["stays"] == 20
    assert found.adversarial["stays"] == 4
    cap = torch.sigmoid(torch.tensor(3.0 + 1.0)).item()
    assert found.maximum[-1] == pytest.approx(cap, rel=1e-6)
    text = "\n".join(lines(found))
    assert "g decays in 0.0%, stays at up to 3 in 100.0% of random directions" in text
    assert found.auc is None


def test_with_a_guard_it_does_nowhere(folder: Path) -> None:
    found = study_run(folder / "prood", far_penalty=1.0, directions=20, adversarial=4)
    assert found.theorem.covers == "every direction"
    assert found.random["uniform"]["decays"] == 20
    assert found.adversarial["decays"] == 4
    assert found.maximum[-1] == 0
    assert found.mean[-1] == pytest.approx(0.25)
    assert "g → −∞ in every direction" in "\n".join(lines(found))


def test_a_guarded_copy_leaves_the_model_alone() -> None:
    model = joint()
    model.about = Metadata({}, classes=["a", "b", "c", "d"], threshold=0.5)
    copied = with_far_penalty(model, 2.0)
    assert isinstance(copied, ProoD)
    assert (copied.discriminator.far_penalty, model.discriminator.far_penalty) == (2.0, 0.0)
    assert (copied.classes, copied.threshold, copied.shift) == (model.classes, 0.5, model.shift)
    assert copied.classifier is model.classifier
    outside = torch.full((1, *SHAPE), 3.0)
    assert copied.in_logit(outside) < model.in_logit(outside) - 2 * 28 * 28


@pytest.mark.slow
def test_the_command_prints_each_condition(folder: Path) -> None:
    result = call(folder / "prood", "--inside", "digits", "--out", "faces")
    assert result.exit_code == 0, result.output
    for word in ("✓ layers", "✓ activation", "✓ weights", "✓ output", "= theorem", "gaussian", "adversarial", "  auc"):
        assert word in result.output
    assert "x from faces" in result.output
    assert "maximum: the largest p(in) over adversarial directions" in result.output


@pytest.mark.slow
def test_a_violated_condition_is_exit_code_1(folder: Path) -> None:
    result = call(folder / "wrong")
    assert result.exit_code == 1
    assert "✗ weights     one is zero, as −exp(h) underflows for h = -150 (1 of 64)" in result.output
    assert "g → −∞ in no direction" in result.output
    plain = call(folder / "plain", "--inside", "digits")
    assert plain.exit_code == 1
    assert "✗ activation" in plain.output
    assert "maximum: the largest confidence over adversarial directions" in plain.output


@pytest.mark.slow
def test_it_writes_a_figure_and_json(folder: Path) -> None:
    result = call(folder / "disc", "--figure", folder / "far.svg", "--json", folder / "far.json")
    assert result.exit_code == 0, result.output
    content = json.loads((folder / "far.json").read_text())
    assert content["theorem"]["holds"] is True
    assert content["theorem"]["conditions"][0]["name"] == "layers"
    assert content["random"]["uniform"]["directions"] == 20
    assert len(content["mean"]) == len(content["maximum"]) == len(content["alphas"]) == 25
    assert (folder / "far.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["plain"], "name some with --in"),
        (["plain", "--inside", "digits", "--far-penalty", "1"], "only a discriminator"),
        (["disc", "--search", "wide"], "unknown search 'wide'"),
        (["nothing"], "there is no model"),
        (["disc", "--out", "no-such-set"], "no-such-set"),
    ],
)
def test_bad_requests_are_one_line(folder: Path, words: list[str], reason: str) -> None:
    result = call(folder / words[0], *words[1:])
    assert isinstance(result.exception, ProodError)
    assert reason in str(result.exception)


def test_a_discriminator_of_its_own_is_judged(g: Discriminator) -> None:
    images = ImageSet("noise", torch.zeros(3, 1, 8, 8, dtype=torch.uint8))
    found = study(g, images, directions=10, adversarial=2, schedule=SHORT)
    assert found.theorem.holds
    assert found.random["uniform"]["directions"] == 10
