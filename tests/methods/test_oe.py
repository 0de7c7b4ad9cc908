import math

import pytest
import torch
from torch import Tensor, nn

from prood.methods import Batch, OutlierExposure, Step

STEP = Step(torch.tensor(0.0))
CLASSES = 3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)]
    return nn.Sequential(*layers).double()


def batches() -> tuple[Batch, Batch]:
    torch.manual_seed(1)
    x, z = torch.rand(2, 6, 1, 4, 4, dtype=torch.float64)
    return Batch(x, torch.arange(6) % CLASSES), Batch(z * 0.3)


def direct(logits_in: Tensor, labels: Tensor, logits_out: Tensor, weight: float) -> float:
    """The formula with probabilities instead of their logarithms."""

    def p(row: list[float], y: int) -> float:
        return math.exp(row[y]) / sum(map(math.exp, row))

    inside = [-math.log(p(row, y)) for row, y in zip(logits_in.tolist(), labels.tolist(), strict=True)]
    outside = [-sum(math.log(p(row, y)) for y in range(CLASSES)) / CLASSES for row in logits_out.tolist()]
    return sum(inside) / len(inside) + weight * sum(outside) / len(outside)


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.0])
def test_the_loss_is_the_formula(weight: float) -> None:
    model, (inside, outside) = network(), batches()
    # Batch norm does not mind the order of its batch: here the two kinds are stacked, not interlaced.
    logits_in, logits_out = model(torch.cat([inside.images, outside.images])).tensor_split(2)
    loss, logs = OutlierExposure(weight=weight)(model, inside, outside, STEP)
    assert math.isclose(loss.item(), direct(logits_in, inside.targets, logits_out, weight), rel_tol=1e-12)
    assert math.isclose(loss.item(), (logs["loss_in"] + weight * logs["loss_out"]).item(), rel_tol=1e-12)


def test_uniform_predictions_are_the_minimum_of_the_out_term() -> None:
    inside, outside = batches()
    constant = nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES)).double()
    nn.init.zeros_(constant[1].weight)
    nn.init.constant_(constant[1].bias, 5.0)
    _, logs = OutlierExposure()(constant, inside, outside, STEP)
    assert math.isclose(logs["loss_out"].item(), math.log(CLASSES), rel_tol=1e-12)
    with torch.no_grad():
        constant[1].bias[0] += 0.1
    _, worse = OutlierExposure()(constant, inside, outside, STEP)
    assert worse["loss_out"] > logs["loss_out"]


def test_the_gradient_is_that_of_finite_differences(check_gradient) -> None:
    model, (inside, outside) = network(), batches()
    objective = OutlierExposure(weight=0.7)
    check_gradient(model, lambda: objective(model, inside, outside, STEP)[0])


def test_batch_norm_sees_the_mixture() -> None:
    model, (inside, outside) = network(), batches()
    model[1].momentum = 1.0
    OutlierExposure()(model, inside, outside, STEP)
    mixture = model[0](torch.cat([inside.images, outside.images]))
    torch.testing.assert_close(model[1].running_mean, mixture.mean((0, 2, 3)))
