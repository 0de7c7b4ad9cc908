import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from prood.errors import BadValue
from prood.methods import Batch, Robust, Step
from prood.methods.robust import divergence

STEP = Step(torch.tensor(0.0))
CLASSES = 3
COUNT = 6


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)]
    return nn.Sequential(*layers).double()


def batch() -> Batch:
    torch.manual_seed(1)
    x = torch.rand(COUNT, 1, 4, 4, dtype=torch.float64)
    return Batch(x, torch.arange(COUNT) % CLASSES, noise=torch.rand_like(x) * 2 - 1)


def start(given: Batch) -> Tensor:
    assert given.noise is not None
    return (given.images + torch.tensor(0.1) * given.noise).clamp(0, 1)


def p(row: list[float]) -> list[float]:
    return [math.exp(value) / sum(map(math.exp, row)) for value in row]


def kl(row: list[float], other: list[float]) -> float:
    return sum(one * math.log(one / two) for one, two in zip(p(row), p(other), strict=True))


def test_the_divergence_is_the_formula() -> None:
    torch.manual_seed(2)
    one, two = torch.randn(2, 5, CLASSES, dtype=torch.float64)
    expected = [kl(row, other) for row, other in zip(one.tolist(), two.tolist(), strict=True)]
    assert divergence(one, two).tolist() == pytest.approx(expected, rel=1e-12)
    assert divergence(one, one).abs().max() == 0
    assert divergence(one * 1000, two * 1000).isfinite().all()


@pytest.mark.parametrize("weight", [6.0, 0.5, 0.0])
def test_the_loss_of_trades_is_the_formula(weight: float) -> None:
    model, given = network(), batch()
    clean, moved = model(torch.cat([given.images, start(given)])).tensor_split(2)
    rows = zip(clean.tolist(), moved.tolist(), given.targets.tolist(), strict=True)
    expected = sum(-math.log(p(row)[y]) + weight * kl(row, other) for row, other, y in rows) / COUNT
    loss, logs = Robust(eps=0.1, attack_steps=0, weight=weight)(model, given, None, STEP)
    assert math.isclose(loss.item(), expected, rel_tol=1e-12)
    assert logs["accuracy"] == (clean.argmax(1) == given.targets).float().mean()
    assert logs["robust_accuracy"] == (moved.argmax(1) == given.targets).float().mean()


def test_the_loss_of_pgd_is_the_formula() -> None:
    model, given = network(), batch()
    rows = zip(model(start(given)).tolist(), given.targets.tolist(), strict=True)
    expected = sum(-math.log(p(row)[y]) for row, y in rows) / COUNT
    loss, _ = Robust(eps=0.1, attack_steps=0, loss="pgd")(model, given, None, STEP)
    assert math.isclose(loss.item(), expected, rel_tol=1e-12)


@pytest.mark.parametrize("kind", ["trades", "pgd"])
def test_the_attack_raises_what_the_loss_lowers(kind: Any) -> None:
    model, given = network().eval(), batch()
    values = [Robust(eps=0.2, attack_steps=n, loss=kind)(model, given, None, STEP)[0].item() for n in (0, 1, 5)]
    assert values[0] < values[1] < values[2]


def test_on_a_linear_classifier_of_two_classes_the_attack_is_the_optimum() -> None:
    """The worst margin in the ball is m − ε·Σ|w|, so the worst cross-entropy is known in closed form."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)).double()
    given = Batch(0.5 + 0.1 * torch.randn(5, 1, 4, 4, dtype=torch.float64).clamp(-2, 2), torch.arange(5) % 2)
    given = Batch(given.images, given.labels, noise=torch.zeros_like(given.images))
    eps = torch.tensor(0.2).double().item()  # ε travels in float32
    w = (model[1].weight[1] - model[1].weight[0]).detach()
    logits = model(given.images)
    margin = (logits[:, 1] - logits[:, 0]) * (2 * given.targets - 1) - eps * w.abs().sum()
    loss, _ = Robust(eps=0.2, attack_steps=4, attack_step_size=0.25, loss="pgd")(model, given, None, STEP)
    expected = sum(math.log1p(math.exp(-value)) for value in margin.tolist()) / 5
    assert math.isclose(loss.item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize("kind", ["trades", "pgd"])
def test_the_gradient_is_that_of_finite_differences(kind: Any, check_gradient) -> None:
    model, given = network(), batch()
    objective = Robust(eps=0.1, attack_steps=0, weight=0.7, loss=kind)
    check_gradient(model, lambda: objective(model, given, None, STEP)[0])


def test_options() -> None:
    assert not Robust.needs_outside
    assert Robust().needs_noise
    with pytest.raises(BadValue):
        Robust(weight=-1)
