import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import NegativeLinear
from prood.methods import Batch, SemiJoint, Step
from prood.models import Discriminator, ProoD

STEP = Step(torch.tensor(0.0))
CLASSES = 4


def joint(shift: float = 1.5) -> ProoD:
    """A float64 joint model with a discriminator that nobody has frozen."""
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    g = Discriminator(nn.Sequential(nn.Flatten(), nn.Linear(9, 5), nn.ReLU(), NegativeLinear(5)))
    return ProoD(classifier, g, shift).double()


def batches() -> tuple[Batch, Batch]:
    torch.manual_seed(1)
    x, z = torch.rand(2, 6, 1, 3, 3, dtype=torch.float64)
    return Batch(x, torch.arange(6) % CLASSES), Batch(z)


def direct(model: ProoD, inside: Batch, outside: Batch, weight: float = 1.0) -> Tensor:
    """Eq. 8 with Eq. 3 and Eq. 9, in float64 and with plain probabilities."""

    def p(images: Tensor) -> Tensor:
        p_f = model.classifier(images).exp()
        p_f = p_f / p_f.sum(1, keepdim=True)
        p_i = 1 / (1 + torch.exp(-(model.discriminator(images) + model.shift)))
        return p_f * p_i[:, None] + (1 - p_i[:, None]) / CLASSES

    p_in, p_out = p(inside.images), p(outside.images)
    of_label = p_in[torch.arange(len(p_in)), inside.targets]
    return -of_label.log().mean() - weight * (p_out.log().sum(1) / CLASSES).mean()


@pytest.mark.parametrize("shift", [0.0, 1.5, -4.0])
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_the_loss_is_eq_8(shift: float, weight: float) -> None:
    model, (inside, outside) = joint(shift), batches()
    loss, logs = SemiJoint(weight=weight)(model, inside, outside, STEP)
    assert math.isclose(loss.item(), direct(model, inside, outside, weight).item(), rel_tol=1e-6)
    assert math.isclose(loss.item(), (logs["loss_in"] + weight * logs["loss_out"]).item(), rel_tol=1e-6)


def test_the_gradient_is_that_of_finite_differences_of_eq_8() -> None:
    model, (inside, outside) = joint(), batches()
    SemiJoint()(model, inside, outside, STEP)[0].backward()
    for parameter in model.classifier.parameters():
        assert parameter.grad is not None
        direction, step = torch.randn_like(parameter), 1e-6
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * direction
                ends.append(direct(model, inside, outside).item())
                parameter -= sign * step * direction
        slope = (ends[0] - ends[1]) / (2 * step)
        assert math.isclose(slope, (parameter.grad * direction).sum().item(), rel_tol=1e-4, abs_tol=1e-7)


def leaves(loss: Tensor) -> set[int]:
    """The ids of all tensors that the graph of a loss would send a gradient to."""
    found, todo, seen = set(), [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        todo += [child for child, _ in node.next_functions]
    return found


def test_no_graph_goes_through_the_discriminator_even_if_nobody_froze_it() -> None:
    model, (inside, outside) = joint(), batches()
    assert all(parameter.requires_grad for parameter in model.discriminator.parameters())
    loss, _ = SemiJoint()(model, inside, outside, STEP)
    assert leaves(loss) == {id(parameter) for parameter in model.classifier.parameters()}
    loss.backward()
    assert all(parameter.grad is None for parameter in model.discriminator.parameters())


def test_the_discriminator_is_evaluated_once_and_without_a_graph() -> None:
    model, (inside, outside) = joint(), batches()
    outputs: list[Tensor] = []
    model.discriminator.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    SemiJoint()(model, inside, outside, STEP)
    assert [(len(output), output.requires_grad) for output in outputs] == [(12, False)]


def with_constant_g(value: float) -> ProoD:
    model = joint(shift=0.0).float()
    with torch.no_grad():
        model.discriminator.last.log_weight.fill_(-200.0)
        model.discriminator.last.bias.fill_(value)
    return model


def as_float32(batch: Batch) -> Batch:
    return Batch(batch.images.float(), batch.labels)


@pytest.mark.parametrize(
    ("g", "expected"),
    [(-100.0, lambda outlier_exposure: 2 * math.log(CLASSES)), (100.0, lambda outlier_exposure: outlier_exposure)],
)
def test_far_out_it_is_flat_and_far_in_it_is_outlier_exposure(g: float, expected: Callable[[float], float]) -> None:
    inside, outside = map(as_float32, batches())
    model = with_constant_g(g)
    loss, _ = SemiJoint()(model, inside, outside, STEP)
    loss.backward()
    log_p = model.classifier(inside.images).log_softmax(1)
    oe = -log_p[torch.arange(6), inside.targets].mean() - model.classifier(outside.images).log_softmax(1).mean()
    assert math.isclose(loss.item(), expected(oe.item()), rel_tol=1e-5)
    gradients = [parameter.grad for parameter in model.classifier.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
