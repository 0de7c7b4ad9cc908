"""From the bound of g to that of the confidence."""

import pytest
import torch
from torch import Tensor, nn

from prood.export.graph import ROOM, Graph, sigmoid
from prood.models import ProoD
from prood.models.confidence import confidence_bound

from .conftest import digits_model, odd_model


class Given(nn.Module):
    """A proof that says what it is told."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = torch.tensor(values, dtype=torch.float64)

    def forward(self, images: Tensor, eps: Tensor) -> Tensor:
        return self.values


def bounds(*values: float, shift: float) -> Tensor:
    model = digits_model()
    graph = Graph(ProoD(model.classifier, model.discriminator, shift))
    graph.proof = Given(*values)
    return graph.in_logit_bound(torch.zeros(len(values), 1, 28, 28), torch.zeros(()))


def test_a_sum_is_at_least_that_in_float64_and_that_in_float32():
    values = torch.linspace(-9, 9, 1001, dtype=torch.float64).float().double()
    shift = torch.tensor(0.7)
    found = bounds(*values.tolist(), shift=0.7)
    narrow = (values.float() + shift).double()
    assert torch.equal(found, torch.maximum(values + shift.double(), narrow))
    assert (narrow > values + shift.double()).any()
    assert (narrow < values + shift.double()).any()


def test_what_may_be_flushed_to_zero_is_zero():
    found = bounds(-1e-40, -1e-37, 1e-40, shift=0.0)
    assert found[0] == 0
    assert found[1] < 0
    assert found[2] > 0


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_the_cap_leaves_room_for_functions(classes):
    g = torch.linspace(-50, 20, 141, dtype=torch.float64)
    exact = (classes - 1) / classes * torch.sigmoid(g) + 1 / classes
    cap = confidence_bound(g, classes, sigmoid, ROOM)
    assert (cap >= torch.minimum(exact * (1 + 0.9 * ROOM), torch.ones(()))).all()
    assert (cap <= exact * (1 + 1.1 * ROOM)).all()
    assert (cap <= 1).all()
    assert confidence_bound(torch.tensor([torch.inf, -torch.inf], dtype=torch.float64), classes, sigmoid, ROOM)[0] == 1


def test_confidences_are_those_of_torch_however_far_from_the_data():
    model = odd_model()
    torch.manual_seed(0)
    images = torch.rand(40, 3, 13, 17)
    graph = Graph(model)
    for fall in (0.0, 1.0, 3.0):
        with torch.no_grad():
            graph.discriminator.network[-1].fixed.mul_(10**fall)
            model.discriminator.last.log_weight.add_(fall * torch.tensor(10.0).log())
            logits = model.logits(images)
            probabilities, p_in, confidence, _ = graph(images, logits, torch.zeros(()))
            torch.testing.assert_close(p_in, torch.sigmoid(model.in_logit(images).double()), rtol=1e-3, atol=0)
            torch.testing.assert_close(confidence, model.confidence(images), rtol=1e-6, atol=0)
            torch.testing.assert_close(probabilities, model.log_probabilities(images).exp(), rtol=1e-5, atol=0)
            assert torch.equal(probabilities.argmax(1), model.predict(images))
    assert (p_in < 1e-100).any()
