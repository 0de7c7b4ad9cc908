import math

import pytest
import torch
from torch import Tensor, nn

from prood.errors import BadValue
from prood.methods import EB, Batch, Step
from prood.models.baselines import EnergyClassifier

CLASSES = 3


def at(epoch: float) -> Step:
    return Step(torch.tensor(epoch))


def network() -> EnergyClassifier:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)]
    model = EnergyClassifier(nn.Sequential(*layers).double())
    with torch.no_grad():
        model.classifier[-1].weight.mul_(8)  # type: ignore[index]  # energies on both sides of both bounds
    return model


def batches() -> tuple[Batch, Batch]:
    torch.manual_seed(1)
    x, z = torch.rand(2, 6, 1, 4, 4, dtype=torch.float64)
    return Batch(x, torch.arange(6) % CLASSES), Batch(z * 0.3)


def direct(logits_in: Tensor, labels: Tensor, logits_out: Tensor, weight: float, m_in: float, m_out: float) -> float:
    """Equations (8) and (9) of the paper, number by number."""

    def energy(row: list[float]) -> float:
        return -math.log(sum(map(math.exp, row)))

    total = 0.0
    for row, y in zip(logits_in.tolist(), labels.tolist(), strict=True):
        total += -math.log(math.exp(row[y]) / sum(map(math.exp, row))) / len(labels)
        total += weight * max(0.0, energy(row) - m_in) ** 2 / len(labels)
    for row in logits_out.tolist():
        total += weight * max(0.0, m_out - energy(row)) ** 2 / len(logits_out)
    return total


@pytest.mark.parametrize(("weight", "m_in", "m_out"), [(0.1, -23.0, -5.0), (0.7, -3.0, -1.0), (1.0, -2.5, -2.0)])
def test_the_loss_is_the_formula(weight: float, m_in: float, m_out: float) -> None:
    model, (inside, outside) = network(), batches()
    logits_in, logits_out = model(torch.cat([inside.images, outside.images])).tensor_split(2)
    loss, logs = EB(weight=weight, m_in=m_in, m_out=m_out)(model, inside, outside, at(0))
    expected = direct(logits_in, inside.targets, logits_out, weight, m_in, m_out)
    assert math.isclose(loss.item(), expected, rel_tol=1e-12)
    torch.testing.assert_close(logs["energy_in"], -logits_in.logsumexp(1).mean())
    torch.testing.assert_close(logs["energy_out"], -logits_out.logsumexp(1).mean())


def test_the_energies_count_from_their_epoch_on() -> None:
    model, (inside, outside) = network(), batches()
    objective = EB(energy_from=2.0)
    before, logs = objective(model, inside, outside, at(1.99))
    assert before == logs["loss_in"]
    after, logs = objective(model, inside, outside, at(2.0))
    torch.testing.assert_close(after, logs["loss_in"] + 0.1 * logs["loss_out"])
    assert logs["loss_out"] > 0


def test_energies_beyond_their_bounds_cost_nothing() -> None:
    model, (inside, outside) = network(), batches()
    energy_in, energy_out = (-model(torch.cat([inside.images, outside.images])).logsumexp(1)).tensor_split(2)
    _, low = EB(m_in=-101.0, m_out=-100.0)(model, inside, outside, at(0))  # all energies lie above both
    torch.testing.assert_close(low["loss_out"], (energy_in + 101).square().mean())
    _, high = EB(m_in=100.0, m_out=101.0)(model, inside, outside, at(0))  # and now below both
    torch.testing.assert_close(high["loss_out"], (101 - energy_out).square().mean())


def test_the_gradient_is_that_of_finite_differences(check_gradient) -> None:
    model, (inside, outside) = network(), batches()
    objective = EB(weight=0.7, m_in=-3.0, m_out=-2.0)
    check_gradient(model, lambda: objective(model, inside, outside, at(0))[0], abs_tol=1e-7)


def test_bounds_that_cross_are_refused() -> None:
    with pytest.raises(BadValue, match=r"m_in.*-5.0.*m_out.*-5.0"):
        EB(m_in=-5.0, m_out=-5.0)
