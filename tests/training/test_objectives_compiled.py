"""Every objective is one graph for the compiler, and one that serves all models of an architecture."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from prood.methods import (
    ACET,
    ATOM,
    CCU,
    EB,
    GOOD,
    Batch,
    CertifiedDiscriminator,
    Objective,
    OutlierExposure,
    Plain,
    Robust,
    SemiJoint,
    Step,
)
from prood.methods.base import train_mode
from prood.models import ProoD, discriminator, small
from prood.models.baselines import EnergyClassifier, with_extra_class
from prood.models.certified import certified_classifier
from prood.models.mixture_classifier import MixtureClassifier
from prood.models.mixtures import MixtureRatio

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


def mixed() -> nn.Module:
    ratio = MixtureRatio(64, 3)
    for part in (ratio.inside, ratio.outside):
        nn.init.normal_(part.centres)
    return MixtureClassifier(small(3, width=3), ratio)


def energetic() -> nn.Module:
    return EnergyClassifier(small(3, width=3))


def bounded() -> nn.Module:
    return certified_classifier(3, "digits", image=IMAGE)


def guaranteed() -> Objective:
    return GOOD(eps=0.05, eps_ramp=2, kappa_ramp=2)


def extended() -> nn.Module:
    return with_extra_class({"name": "small", "classes": 3, "width": 3})


def adversarial() -> list[tuple[Callable[[], Objective], Callable[[], nn.Module]]]:
    """Few steps: where a sign-gradient attack ends is no continuous function of rounding."""
    options = {"eps": 0.05, "eps_ramp": 2, "attack_steps": 1}
    kinds = [(ACET, alone), (ATOM, extended), (Robust, alone), (partial(Robust, loss="pgd"), alone)]
    return [(partial(kind, **options), make) for kind, make in kinds]


CASES = [(Plain, alone), (OutlierExposure, alone), (SemiJoint, joint), (ours, certified), (paper, certified)]
CASES += adversarial()
CASES += [(CCU, mixed), (partial(EB, energy_from=1.0), energetic), (guaranteed, bounded)]


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
    noise = torch.rand_like(z) * 2 - 1
    return Batch(x, torch.arange(count) % 3, noise), Batch(z, noise=noise)


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


@pytest.mark.slow
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
