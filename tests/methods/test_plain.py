import math

import torch
from torch import Tensor, nn

from prood.methods import Batch, Plain, Step

STEP = Step(torch.tensor(0.0))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def batch() -> Batch:
    torch.manual_seed(1)
    return Batch(torch.rand(7, 1, 3, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2, 0]))


def test_the_loss_is_the_mean_of_minus_log_p() -> None:
    model, data = network(), batch()
    logits = model(data.images).tolist()
    direct = [
        -math.log(math.exp(row[y]) / sum(map(math.exp, row))) for row, y in zip(logits, data.targets, strict=True)
    ]
    loss, _ = Plain()(model, data, None, STEP)
    assert math.isclose(loss.item(), sum(direct) / 7, rel_tol=1e-12)


def test_the_gradient_is_that_of_finite_differences() -> None:
    model, data = network(), batch()

    def loss(weight: Tensor) -> Tensor:
        parts = lambda images: model[3](model[2](nn.functional.linear(images.flatten(1), weight, model[1].bias)))  # noqa: E731
        return Plain()(parts, data, None, STEP)[0]  # type: ignore[arg-type]

    assert torch.autograd.gradcheck(loss, (model[1].weight.detach().clone().requires_grad_(),))


def test_accuracy_is_the_share_of_right_answers_and_has_no_graph() -> None:
    logits = torch.tensor([[2.0, 1, 0], [2, 1, 0], [0, 1, 0], [0, 0, 9]], requires_grad=True)
    _, logs = Plain()(lambda images: logits, Batch(torch.zeros(4), torch.tensor([0, 1, 1, 1])), None, STEP)  # type: ignore[arg-type]
    assert logs["accuracy"].item() == 0.5
    assert not logs["accuracy"].requires_grad


def test_it_asks_for_no_out_distribution() -> None:
    assert not Plain.needs_outside
    assert not Plain().needs_noise
