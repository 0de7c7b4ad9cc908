import math
from typing import Any

import pytest
import torch
from torch import nn

from prood.bounds import NegativeLinear
from prood.errors import BadValue
from prood.models import Discriminator, ProoD
from prood.training import TrainOptions


def rates(options: TrainOptions, *epochs: float) -> list[float]:
    return [options.learning_rate(epoch) for epoch in epochs]


def test_the_learning_rate_is_constant_unless_asked_otherwise() -> None:
    assert rates(TrainOptions(lr=0.1, epochs=5), 0, 0.5, 4.99) == [0.1] * 3


def test_drops_divide_by_the_factor_from_their_epoch_on() -> None:
    """The paper's discriminator: 1e-4, divided by 5 on epochs 500, 750 and 850."""
    options = TrainOptions(epochs=1000, lr=1e-4, drops=(500, 750, 850), drop_factor=5)
    expected = [1e-4, 1e-4, 2e-5, 2e-5, 4e-6, 8e-7, 8e-7]
    assert rates(options, 0, 499.99, 500, 749, 750, 850, 999) == pytest.approx(expected, rel=1e-12)


def test_warmup_grows_linearly_from_zero() -> None:
    options = TrainOptions(epochs=10, lr=0.4, warmup=2)
    assert rates(options, 0, 0.5, 1, 2, 3) == pytest.approx([0, 0.1, 0.2, 0.4, 0.4])


def test_the_linear_decay_ends_at_zero() -> None:
    options = TrainOptions(epochs=10, lr=0.4, decay_from=6)
    assert rates(options, 0, 6, 7, 9, 10) == pytest.approx([0.4, 0.4, 0.3, 0.1, 0.0])


def test_decay_from_the_start() -> None:
    assert rates(TrainOptions(epochs=4, lr=1.0, decay_from=0), 0, 1, 3) == pytest.approx([1, 0.75, 0.25])


def test_warmup_drops_and_decay_multiply() -> None:
    options = TrainOptions(epochs=8, lr=1.0, warmup=4, drops=(2,), decay_from=0)
    assert rates(options, 1, 2, 6) == pytest.approx([1 / 4 * 7 / 8, 0.1 * 2 / 4 * 6 / 8, 0.1 * 2 / 8])


@pytest.mark.parametrize("name", ["epochs", "batch", "lr", "drop_factor"])
@pytest.mark.parametrize("value", [0, -1])
def test_refuses_what_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(BadValue, match=name):
        TrainOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["epochs", "lr", "drop_factor"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_refuses_what_is_no_finite_number(name: str, value: float) -> None:
    with pytest.raises(BadValue, match=name):
        TrainOptions(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["warmup", "drops", "decay_from", "checkpoint_seconds"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_refuses_what_is_negative_or_no_finite_number(name: str, value: float) -> None:
    with pytest.raises(BadValue, match=rf"{name}.*{value}"):
        TrainOptions(**{name: (1.0, value) if name == "drops" else value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [10, 12.5])
def test_refuses_a_decay_that_begins_after_the_end(value: float) -> None:
    with pytest.raises(BadValue, match=rf"decay_from.*{value}.*10"):
        TrainOptions(epochs=10, decay_from=value)


@pytest.mark.parametrize(
    "settings",
    [{"weight_decay": -1e-4}, {"momentum": -0.1}, {"momentum": 1.5}, {"nesterov": True, "momentum": 0.0}],
    ids=str,
)
def test_refuses_what_an_optimiser_would_refuse_later(settings: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match=next(iter(settings))):
        TrainOptions(optimizer="sgd", **settings)


def network() -> Discriminator:
    return Discriminator(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), NegativeLinear(3)))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_no_weight_decay_on_the_last_layers_weight_and_bias(optimizer: Any) -> None:
    g = network()
    made = TrainOptions(optimizer=optimizer, weight_decay=5e-4).make_optimizer(g)
    decay = {id(p): group["weight_decay"] for group in made.param_groups for p in group["params"]}
    assert {name: decay[id(p)] for name, p in g.named_parameters()} == {
        "body.1.weight": 5e-4,
        "body.1.bias": 5e-4,
        "tail.1.log_weight": 0.0,
        "tail.1.bias": 0.0,
    }


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weight_decay_is_coupled_l2(optimizer: Any) -> None:
    """One step on a loss without weights in it equals a step on λ/2·‖w‖² without weight decay."""
    options = {"optimizer": optimizer, "lr": 0.1, "momentum": 0.0}
    decayed, by_hand = nn.Linear(3, 2), nn.Linear(3, 2)
    by_hand.load_state_dict(decayed.state_dict())
    one = TrainOptions(weight_decay=0.3, **options).make_optimizer(decayed)
    other = TrainOptions(weight_decay=0.0, **options).make_optimizer(by_hand)
    for _ in range(3):
        for parameter in decayed.parameters():
            parameter.grad = torch.zeros_like(parameter)
        one.step()
        other.zero_grad()
        (0.3 / 2 * sum(parameter.square().sum() for parameter in by_hand.parameters())).backward()  # type: ignore[union-attr]
        other.step()
    for a, b in zip(decayed.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_sgd_gets_its_momentum_and_nesterov() -> None:
    made = TrainOptions(optimizer="sgd", lr=0.3, momentum=0.8, nesterov=True).make_optimizer(nn.Linear(2, 2))
    assert isinstance(made, torch.optim.SGD)
    assert [made.defaults[name] for name in ("lr", "momentum", "nesterov")] == [0.3, 0.8, True]
    assert isinstance(TrainOptions(optimizer="adam").make_optimizer(nn.Linear(2, 2)), torch.optim.Adam)


def test_what_is_frozen_is_not_optimised() -> None:
    model = ProoD(nn.Linear(4, 2), network().requires_grad_(False))
    made = TrainOptions().make_optimizer(model)
    optimised = {id(p) for group in made.param_groups for p in group["params"]}
    assert optimised == {id(p) for p in model.classifier.parameters()}
