"""The plan of a guard: what is chosen from the images, what is asked for stays, and the time is kept to."""

import numpy as np
import pytest
import torch

from prood.errors import BadValue, Mismatch, UnknownName
from prood.studies.guarding.asked import Asked, look, set_name
from prood.studies.guarding.choosing import averaging
from prood.studies.guarding.plan import MOST_EPOCHS, plan
from prood.training import explain_recipe, load_recipe

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """300 squares in four classes and 150 ramps, 8×8."""
    folder = tmp_path_factory.mktemp("sets")
    random = np.random.default_rng(0)
    labels = np.arange(300) % 4
    squares = random.integers(0, 50, (300, 8, 8))
    for image, label in zip(squares, labels, strict=True):
        image[4 * (label // 2) :, 4 * (label % 2) :] += 100
    np.savez(folder / "squares.npz", images=squares.astype(np.uint8), labels=labels)
    np.savez(folder / "ramps.npz", images=random.integers(0, 256, (150, 8, 8)).astype(np.uint8))
    np.savez(folder / "large.npz", images=random.integers(0, 256, (150, 9, 9)).astype(np.uint8))
    return folder


def asked(sets, **choices):
    return Asked(f"npz:{sets}/squares.npz", f"npz:{sets}/ramps.npz", **choices)


def test_a_plan_keeps_to_its_time_and_to_what_is_asked_for(sets):
    wanted = asked(sets, minutes=60, eps=0.07, accept=0.9, size="8s2 fc16")
    recipe, estimate = plan(wanted, look(wanted), CPU)
    assert estimate.total <= 3601
    assert recipe.guard.minutes == 60
    assert recipe.guard.accept == 0.9
    settings = recipe.resolved("discriminator")
    assert settings["train"]["eps"] == 0.07
    assert settings["discriminator"]["size"] == "8s2 fc16"
    assert 0 < settings["train"]["epochs"] <= MOST_EPOCHS
    assert settings["train"]["eps_ramp"] <= settings["train"]["epochs"]
    assert str(estimate.steps) in str(estimate).replace(",", "")


def test_a_plan_reads_as_the_recipe_that_it_writes(sets, tmp_path):
    wanted = asked(sets, minutes=60, size="8s2 fc16", epochs=2)
    recipe, estimate = plan(wanted, look(wanted), CPU)
    file = tmp_path / "guard.toml"
    file.write_text(explain_recipe(recipe) + "\n")
    again = load_recipe(str(file))
    assert again.guard == recipe.guard
    assert again.resolved("discriminator") == recipe.resolved("discriminator")
    assert estimate.steps == 2 * ((300 - 45 - 60 - 45) // recipe.options("discriminator").batch)
    assert recipe.guard.provable == "0"  # 45 held-out images make no gate


def test_what_cannot_be_done_in_the_time_is_refused(sets):
    wanted = asked(sets, minutes=0.001, size="8s2 fc16")
    with pytest.raises(BadValue, match="--minutes"):
        plan(wanted, look(wanted), CPU)


def test_sets_that_cannot_be_guarded_are_refused(sets):
    with pytest.raises(BadValue, match="labels"):
        look(Asked(f"npz:{sets}/ramps.npz"))
    with pytest.raises(Mismatch, match="9×9"):
        look(Asked(f"npz:{sets}/squares.npz", f"npz:{sets}/large.npz"))
    assert set_name(str(sets / "ramps.npz")) == f"npz:{sets}/ramps.npz"
    assert set_name(str(sets)) == f"folder:{sets}"
    assert set_name("digits:train") == "digits:train"
    with pytest.raises(UnknownName, match="no/such"):
        set_name("no/such")
    with pytest.raises(BadValue, match="2"):
        asked(sets, eps=2)


@pytest.mark.parametrize(
    ("sides", "factor", "front"),
    [((32, 32), 1, ""), ((64, 64), 1, ""), ((224, 224), 4, ""), ((256, 320), 4, ""), ((331, 331), 1, "p6 ")],
)
def test_large_images_are_averaged_down_to_about_56_pixels(sides, factor, front):
    assert averaging(*sides, 56) == (factor, front)
