"""The two figures about what is far away, on models trained in seconds."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prood.evaluation.asymptotics import CURVE, SCHEDULES, Stage, with_far_penalty
from prood.models import load
from prood.report.experiments import EXPERIMENTS, asymptotic, perform
from prood.studies import Runner


@pytest.fixture(scope="module", autouse=True)
def steps() -> Iterator[None]:
    """The searches with a few steps each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCHEDULES, "paper", (Stage(100.0, 20, 2.0), Stage(1000.0, 10, 10.0)))
        patch.setitem(SCHEDULES, "far", (Stage(100.0, 20, 2.0), Stage(1e6, 20, 1e4)))
        patch.setattr(asymptotic, "COUNT", 8)
        patch.setattr(asymptotic, "RANDOM", 50)
        yield


@pytest.fixture(scope="module")
def runner(runner_in: Callable[..., Runner], tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return runner_in(tmp_path_factory.mktemp("far"))


@pytest.fixture(scope="module")
def far(runner: Runner) -> dict:
    return json.loads(perform(asymptotic.CONFIDENCE, runner).read_text())


@pytest.fixture(scope="module")
def found(runner: Runner) -> dict:
    return json.loads(perform(asymptotic.DIRECTIONS, runner).read_text())


def test_they_are_registered() -> None:
    assert asymptotic.CONFIDENCE in EXPERIMENTS
    assert asymptotic.DIRECTIONS in EXPERIMENTS


@pytest.mark.slow
def test_every_model_has_a_curve(far: dict) -> None:
    content = far["content"]
    # Others are shown only if they are there.
    assert set(content["curves"]) == {"Plain", "OE", "ProoD, no guard", "ProoD, guarded"}
    assert content["alphas"] == list(CURVE)
    assert all(len(values) == len(CURVE) for values in content["curves"].values())
    assert {"plain-0", "oe-0", "prood-0"} <= set(far["models"])
    assert content["trajectories"] == 6
    assert "/" not in content["outside"]  # no folder of one machine


def test_plain_becomes_sure_and_the_guarded_one_does_not(far: dict) -> None:
    curves = far["content"]["curves"]
    assert curves["Plain"][-1] > 0.95
    assert curves["ProoD, guarded"][-1] == pytest.approx(0.25, abs=1e-12)
    assert curves["ProoD, no guard"][-1] >= curves["ProoD, guarded"][-1]


def test_on_images_a_guard_changes_nothing(runner: Runner) -> None:
    model, _ = load(runner.run("prood"))
    images = runner.inside().floats()
    assert with_far_penalty(model)(images).equal(model(images))


@pytest.mark.slow
def test_directions_have_fates(found: dict) -> None:
    models = found["content"]["models"]
    assert list(models) == ["ProoD, no guard", "ProoD, no guard, farther out", "ProoD, guarded", "Plain"]
    assert [about["search"] for about in models.values()] == ["paper", "far", "far", "far"]
    for title, about in models.items():
        assert about["directions"] == 8
        assert ("fates" in about) == (title != "Plain")
    guarded = models["ProoD, guarded"]
    assert guarded["covers"] == "every direction"
    assert guarded["fates"]["decays"] == 8
    assert all(about["decays"] == 50 for about in guarded["random"].values())
    assert guarded["maximum"][-1] == 0
    assert models["ProoD, no guard"]["covers"] != "every direction"
    assert models["Plain"]["maximum"][-1] > 0.99


def test_sections_say_what_was_measured(far: dict, found: dict) -> None:
    text = asymptotic.CONFIDENCE.section(far["content"])
    assert f"| Plain | {100 * far['content']['curves']['Plain'][0]:.1f} |" in text
    text = asymptotic.DIRECTIONS.section(found["content"])
    assert "| ProoD, guarded | far | " in text
    assert " 8 / 0 | 100.0% | 100.0% |" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["far", "found"])
def test_figures_have_the_same_bytes_each_time(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    content = request.getfixturevalue(name)["content"]
    experiment = asymptotic.CONFIDENCE if name == "far" else asymptotic.DIRECTIONS
    assert experiment.draw is not None
    for file in ("one.svg", "two.svg"):
        experiment.draw(content, tmp_path / file)
    drawn = (tmp_path / "one.svg").read_bytes()
    assert drawn.startswith(b"<?xml")
    assert drawn == (tmp_path / "two.svg").read_bytes()
    assert b"<dc:date>" not in drawn


def test_without_a_trained_model_it_is_left_out_and_said(
    runner: Runner, runner_in: Callable[..., Runner], tmp_path: Path
) -> None:
    other = runner_in(tmp_path, training=False)
    (tmp_path / "runs").mkdir()
    for run in ("discriminator", "prood"):
        (tmp_path / "runs" / run).symlink_to(runner.place(run))
    content = asymptotic.CONFIDENCE.make(other)
    assert set(content["curves"]) == {"ProoD, no guard", "ProoD, guarded"}
    assert "Plain is left out: its weights are not here" in other.notes
    assert "Plain" not in asymptotic.DIRECTIONS.make(other)["models"]
