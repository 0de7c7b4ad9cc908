"""Every objective is one graph for the compiler, and one that serves all models of an architecture."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from prood.models import ProoD, discriminator, small
from prood.training.objectives import (
    Batch,
    CertifiedDiscriminator,
    Objective,
    OutlierExposure,
    Plain,
    SemiJoint,
    Step,
)
from prood.training.objectives.base import train_mode

IMAGE = (1, 8, 8)


def alone() -> nn.Module:
    return small(3, width=3)


def certified() -> nn.Module:
    return discriminator("digits", image=IMAGE)


def joint() -> nn.Module:
    return ProoD(small(3, width=3), discriminator("digits", image=IMAGE).eval().requires_grad_(False), 1.5)


def ours() -> Objective:
    return CertifiedDiscriminator(eps=0.05, eps_ramp=2, kappa_ramp=2)


def paper() -> Objective:
    return CertifiedDiscriminator(eps=0.05, bound="ibp", eps_ramp=2, kappa_ramp=2, loss="official")


CASES = [(Plain, alone), (OutlierExposure, alone), (SemiJoint, joint), (ours, certified), (paper, certified)]


@pytest.fixture(autouse=True)
def compiler() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()
    counters.clear()


def batches(seed: int, count: int = 5) -> tuple[Batch, Batch]:
    torch.manual_seed(seed)
    x, z = torch.rand(2, count, *IMAGE)
    return Batch(x, torch.arange(count) % 3), Batch(z, noise=torch.rand_like(z) * 2 - 1)


def fresh(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = make()
    train_mode(model)
    return model


def gradients(loss_of: Callable[..., tuple[Tensor, dict[str, Tensor]]], model: nn.Module, seed: int) -> list[Tensor]:
    """The loss, what is logged and the gradients of a step."""
    loss, logs = loss_of(model, *batches(seed), Step(torch.tensor(0.5 * seed)))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [loss.detach(), *(value.detach() for value in logs.values()), *torch.autograd.grad(loss, trained)]


@pytest.mark.parametrize(("objective", "make"), CASES)
def test_one_graph_serves_all_models_of_an_architecture(
    objective: Callable[[], Objective], make: Callable[[], nn.Module]
) -> None:
    """A study trains many models in a process, and compilation takes longer than an epoch. Nor is there another graph
    for another batch or another place in the ramps; and none of the first model's numbers is part of it."""
    for seed in range(3):
        compiled = torch.compile(objective(), backend="aot_eager", fullgraph=True)  # raises where the graph breaks
        model, twin = fresh(make, seed), fresh(make, seed)
        for step in (1, 3):
            found, expected = gradients(compiled, model, step), gradients(objective(), twin, step)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
