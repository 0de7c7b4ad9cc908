import math

import pytest
import torch
from torch import Tensor, nn

from prood.errors import BadValue
from prood.methods import ACET, Batch, Step

STEP = Step(torch.tensor(0.0))
CLASSES = 3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, CLASSES)]
    return nn.Sequential(*layers).double()


def batches() -> tuple[Batch, Batch]:
    torch.manual_seed(1)
    x, z = torch.rand(2, 6, 1, 4, 4, dtype=torch.float64)
    return Batch(x, torch.arange(6) % CLASSES), Batch(z * 0.3, noise=torch.rand_like(z) * 2 - 1)


def direct(logits_in: Tensor, labels: Tensor, logits_out: Tensor, weight: float) -> float:
    """The formula with probabilities: −log p(y|x) + weight · log max_k p(k|z̃)."""

    def p(row: list[float], y: int) -> float:
        return math.exp(row[y]) / sum(map(math.exp, row))

    inside = [-math.log(p(row, y)) for row, y in zip(logits_in.tolist(), labels.tolist(), strict=True)]
    outside = [math.log(max(p(row, y) for y in range(CLASSES))) for row in logits_out.tolist()]
    return sum(inside) / len(inside) + weight * sum(outside) / len(outside)


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.0])
def test_without_steps_the_loss_is_the_formula_at_the_random_start(weight: float) -> None:
    model, (inside, outside) = network(), batches()
    assert outside.noise is not None
    start = (outside.images + torch.tensor(0.1) * outside.noise).clamp(0, 1)
    # Batch norm does not mind the order of its batch: here the two kinds are stacked, not interlaced.
    logits_in, logits_out = model(torch.cat([inside.images, start])).tensor_split(2)
    loss, logs = ACET(eps=0.1, attack_steps=0, weight=weight)(model, inside, outside, STEP)
    assert math.isclose(loss.item(), direct(logits_in, inside.targets, logits_out, weight), rel_tol=1e-12)
    assert math.isclose(loss.item(), (logs["loss_in"] + weight * logs["loss_out"]).item(), rel_tol=1e-12)


def test_the_attack_raises_the_confidence_that_the_loss_lowers() -> None:
    model, (inside, outside) = network().eval(), batches()
    values = [ACET(eps=0.2, attack_steps=n)(model, inside, outside, STEP)[1]["loss_out"].item() for n in (0, 1, 5)]
    assert values[0] < values[1] < values[2]
    corners = (outside.images + 0.2 * torch.randn(50, *outside.images.shape).sign()).clamp(0, 1)
    random = model(corners.flatten(0, 1)).log_softmax(1).amax(1).view(50, -1)
    assert values[2] > random.mean(1).max().item()  # of fifty random corners of the balls, none is as bad


def test_uniform_predictions_are_the_minimum_of_the_out_term() -> None:
    inside, outside = batches()
    constant = nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES)).double()
    nn.init.zeros_(constant[1].weight)
    nn.init.constant_(constant[1].bias, 5.0)
    _, logs = ACET(eps=0.1)(constant, inside, outside, STEP)
    assert math.isclose(logs["loss_out"].item(), -math.log(CLASSES), rel_tol=1e-12)
    with torch.no_grad():
        constant[1].bias[0] += 0.1
    _, worse = ACET(eps=0.1)(constant, inside, outside, STEP)
    assert worse["loss_out"] > logs["loss_out"]


def test_the_gradient_is_that_of_finite_differences(check_gradient) -> None:
    """By the weights, with the attacked points held fixed, as in every adversarial training."""
    model, (inside, outside) = network(), batches()
    objective = ACET(eps=0.1, attack_steps=0, weight=0.7)
    check_gradient(model, lambda: objective(model, inside, outside, STEP)[0])


def test_batch_norm_sees_the_mixture_with_attacked_images_once() -> None:
    model, (inside, outside) = network(), batches()
    model[1].momentum = 1.0
    objective = ACET(eps=0.1, attack_steps=2)
    attacked = objective.attack(model, outside, torch.tensor(0.1), lambda u: model(u).log_softmax(1).amax(1))
    objective(model, inside, outside, STEP)
    mixture = model[0](torch.cat([inside.images, attacked]))
    torch.testing.assert_close(model[1].running_mean, mixture.mean((0, 2, 3)))
    assert model[1].num_batches_tracked == 1


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(BadValue):
        ACET(weight=-1)
    with pytest.raises(BadValue):
        ACET(eps=7)
