import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import nn

from prood.bounds import NegativeLinear
from prood.errors import BadValue
from prood.methods import METHODS, Batch, Objective, Step, interlace, ramp, separate
from prood.methods.base import train_mode
from prood.models import Discriminator, ProoD


def at(epoch: float) -> Step:
    return Step(torch.tensor(epoch))


def test_separate_undoes_interlace() -> None:
    x, z = torch.rand(5, 1, 3, 3), torch.rand(5, 1, 3, 3)
    mixed = interlace(x, z)
    assert mixed.shape == (10, 1, 3, 3)
    back_x, back_z = separate(mixed)
    assert torch.equal(back_x, x)
    assert torch.equal(back_z, z)


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_every_device_that_gets_a_contiguous_part_sees_both_kinds_equally(devices: int) -> None:
    mixed = interlace(torch.zeros(12, 1), torch.ones(12, 1))
    assert [part.mean().item() for part in mixed.chunk(devices)] == [0.5] * devices


def test_ramp_is_linear_from_zero_and_stays_at_one() -> None:
    assert [ramp(at(epoch), 4).item() for epoch in (0, 1, 2.5, 4, 100)] == [0, 0.25, 0.625, 1, 1]


@pytest.mark.parametrize("epochs", [0, -1.0])
def test_no_ramp_is_one_from_the_first_step(epochs: float) -> None:
    assert ramp(at(0), epochs).item() == 1


def test_the_base_class_has_no_loss_and_no_complaints() -> None:
    with pytest.raises(TypeError, match="Objective does not define the loss"):
        Objective()(nn.Identity(), Batch(torch.zeros(1)), None, at(0))
    assert Objective().diagnose({"loss": 1.0}) is None


OPTIONS = [(kind, item.name) for kind in METHODS.values() for item in fields(kind) if item.type in ("int", "float")]


@pytest.mark.parametrize(("kind", "name"), OPTIONS)
def test_no_option_of_any_objective_is_meaningless(kind: Any, name: str) -> None:
    """None is nan or infinite, and but for energies none is negative."""
    values: list[float] = [] if type(getattr(kind, name)) is int else [math.nan, math.inf]
    for value in values + ([] if name in ("m_in", "m_out") else [-1]):
        with pytest.raises(BadValue, match=name):
            kind(**{name: value})


def test_a_batch_without_labels_has_no_targets() -> None:
    with pytest.raises(AssertionError):
        Batch(torch.zeros(1)).targets  # noqa: B018


def parts() -> tuple[nn.Sequential, Discriminator]:
    classifier = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(8, 2))
    g = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.ReLU())
    return classifier, Discriminator(nn.Sequential(*g, NegativeLinear(3)))


def modes(model: nn.Module) -> set[bool]:
    return {module.training for module in model.modules()}


def test_train_mode_keeps_a_frozen_part_in_eval() -> None:
    classifier, g = parts()
    model = ProoD(classifier, g.requires_grad_(False)).eval()
    train_mode(model)
    assert modes(classifier) == {True}
    assert modes(g) == {False}


def test_train_mode_leaves_the_statistics_of_a_frozen_part_alone() -> None:
    classifier, g = parts()
    model = ProoD(classifier, g.requires_grad_(False))
    train_mode(model)
    before = {name: value.clone() for name, value in g.state_dict().items()}
    model(torch.rand(6, 1, 4, 4))
    assert all(torch.equal(value, before[name]) for name, value in g.state_dict().items())
    assert classifier[1].num_batches_tracked == 1


@pytest.mark.parametrize("kind", ["sequential", "discriminator", "joint"])
def test_train_mode_turns_on_everything_that_is_trained(kind: str) -> None:
    classifier, g = parts()
    model: Any = {"sequential": classifier, "discriminator": g, "joint": ProoD(classifier, g)}[kind]
    train_mode(model.eval())
    # Layers without parameters too: a dropout that stays in eval mode is no dropout.
    assert modes(model) == {True}


def test_the_old_name_of_the_room_stays_for_one_version() -> None:
    from prood.training import objectives

    assert objectives.Objective is Objective
    assert objectives.Plain is METHODS["plain"]
