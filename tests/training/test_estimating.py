import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from prood.methods import METHODS, Batch, Objective
from prood.training import Estimate, Recipe, estimate, estimating, train
from prood.training.memory import Meter, free, held
from prood.training.trainer import _prepare

CPU = torch.device("cpu")


@pytest.mark.parametrize("method", ["plain", "oe", "discriminator", "prood"])
def test_an_estimate_counts_the_steps_of_the_schedule(method: str, recipe: Recipe) -> None:
    found = estimate(method, recipe, device="cpu")
    assert found.steps == 3 * (96 // 24)
    assert 0 < found.seconds_a_step < 10
    assert found.seconds == found.steps * found.seconds_a_step
    assert found.bytes > held(CPU) // 10
    assert found.device == "cpu"


def test_measuring_changes_nothing(recipe: Recipe) -> None:
    made = _prepare("discriminator", recipe, None, None, {"device": "cpu"})
    assert isinstance(made.declared, Objective)
    before, random = copy.deepcopy(made.model.state_dict()), torch.random.get_rng_state()
    first = made.batches(0)[0].images.clone()
    estimating.measure(made.model, made.declared, made.batches, made.options)
    assert all(torch.equal(before[name], value) for name, value in made.model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), random)
    assert torch.equal(made.batches(0)[0].images, first)
    assert all(parameter.grad is None for parameter in made.model.parameters())


def test_a_training_that_is_announced_is_the_same(recipe: Recipe, tmp_path: Path, console: Console) -> None:
    quiet, told = (
        train("oe", recipe, tmp_path / str(said), device="cpu", console=console, announce=said)
        for said in (False, True)
    )
    assert all(torch.equal(quiet.state_dict()[name], value) for name, value in told.state_dict().items())


def test_training_says_what_it_takes_before_it_begins(
    recipe: Recipe, tmp_path: Path, console: Console, said: Callable[[], str]
) -> None:
    train("plain", recipe, tmp_path / "silent", device="cpu", console=console)
    assert "estimate" not in said()
    train("plain", recipe, tmp_path / "told", device="cpu", console=console, announce=True)
    assert "12 steps" in said()
    assert "peak memory" in said()


def test_what_is_extrapolated_is_near_what_is_measured(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take 2.5 s an image leave time for 2 and for 8 images of 24, quick ones for all of them. What other
    programs take in a first look is not counted with each image."""
    made = _prepare("discriminator", recipe, None, None, {"device": "cpu"})
    assert isinstance(made.declared, Objective)
    monkeypatch.setattr(estimating, "held", lambda device: 0)
    monkeypatch.setattr(estimating, "_seconds_to_read", lambda batches, start: 0.0)

    def measured(seconds: list[float]) -> Estimate:
        given = iter(seconds)
        monkeypatch.setattr(estimating, "_quickest", lambda step, device: next(given))
        found = estimating.measure(made.model, made.declared, made.batches, made.options)
        assert not list(given)
        return found

    guessed, whole = measured([5.0, 20.0]), measured([0.001, 0.004, 0.012])
    assert guessed.seconds_a_step == pytest.approx(60)
    assert measured([4.0, 4.5, 5.0]).seconds_a_step == pytest.approx(5.0)
    assert whole.seconds_a_step == 0.012
    assert 0.7 * whole.bytes < guessed.bytes < 1.4 * whole.bytes
    assert measured([10.0]).bytes > 0.7 * whole.bytes


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"prood"}))
def test_every_method_takes_steps_of_two_images(method: str, recipe: Recipe) -> None:
    """The first measurement: what needs more of them would fail there."""
    table = {"epochs": 3.0, "batch": 24, "lr": 0.01}
    networks = {**recipe.own_networks, "good": {"name": "certified-classifier", "size": "digits"}}
    whole = replace(recipe, train=recipe.train | {method: table}, own_networks=networks)
    made = _prepare(method, whole, None, None, {"device": "cpu"})
    assert isinstance(made.declared, Objective)
    found = estimating.measure(made.model, made.declared, made.batches, made.options)
    assert found.seconds_a_step > 0


def test_memory_that_is_taken_is_counted_and_what_is_given_back_is_not() -> None:
    meter = Meter(CPU)
    with meter.measuring() as taken:
        kept = torch.ones(1000)
        passing = torch.ones(4000) + 1
        del passing
        torch.ones(500).view(5, 100)
    peak, level = taken()
    assert level == kept.nbytes
    assert peak == 4 * (1000 + 2 * 4000)


def test_backward_passes_are_counted() -> None:
    meter, layer, images = Meter(CPU), nn.Linear(100, 100, bias=False), torch.ones(10, 100)
    with meter.measuring() as taken:
        layer(images).sum().backward()
    assert taken()[1] == 100 * 100 * 4  # the gradient stays


def test_this_process_holds_memory_and_there_is_more() -> None:
    assert held(CPU) > 10**7
    assert (free(CPU) or 1) > 0


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Estimate(0.0123, 1000, 2 * 10**9), ["1,000 steps of 0.012 s", "about 12 s", "2.0 GB"]),
        (
            Estimate(118.0, 1000, 21 * 10**9, available=4 * 10**9),
            ["2 min", "32 h 47 min", "21.0 GB", "4.0 GB", "batch"],
        ),
        (Estimate(0.5, 1000, 10**8, compiled=True), ["at most 8 min", "100 MB"]),
    ],
)
def test_an_estimate_is_one_line(found: Estimate, words: list[str]) -> None:
    assert all(word in str(found) for word in words)
    assert "\n" not in str(found)
    assert found.fits == (found.available is None)


def test_batches_are_cut_without_the_rest() -> None:
    cut = estimating._first(Batch(torch.zeros(8, 1, 4, 4), torch.arange(8)), 2)
    assert cut.images.untyped_storage().nbytes() == 2 * 16 * 4
    assert cut.targets.tolist() == [0, 1]
