"""One step of training: the loss, its gradients, the update; and on a GPU all of it as one captured graph."""

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import strict
from prood.methods import Batch, CertifiedDiscriminator, Logs, Objective, Plain, Step
from prood.models import discriminator
from prood.training.options import TrainOptions
from prood.training.update import WARM_UP, Update

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Slope(Objective):
    """The sum of the weights: each has the gradient 1, and every step moves it by its learning rate."""

    def __call__(self, model: Any, batch_in: Batch, batch_out: Batch | None, step: Step) -> tuple[Tensor, Logs]:
        return model.weight.sum(), {"epoch": step.epoch, "brightness": batch_in.images.mean()}


def line() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def update_of(model: nn.Module, objective: Objective, device: torch.device = CPU, **options: Any) -> Update:
    settings = TrainOptions(**options)
    return Update(model, objective, settings.make_optimizer(model), settings, device)


def grey(value: float) -> Batch:
    return Batch(torch.full((2, 1, 3, 3), float(value)))


def test_means_are_of_the_steps_since_they_were_last_asked_for() -> None:
    update = update_of(line(), Slope(), optimizer="sgd", momentum=0)
    for step in range(4):
        update(grey(step / 4), None, float(step), 1.0)
    # The loss is that before the update: 0, −1, −2, −3.
    assert update.means() == pytest.approx({"loss": -1.5, "epoch": 1.5, "brightness": 0.375})
    update(grey(1.0), None, 10.0, 1.0)
    update(grey(0.5), None, 20.0, 1.0)
    assert update.means() == pytest.approx({"loss": -4.5, "epoch": 15.0, "brightness": 0.75})


def test_a_step_takes_the_learning_rate_that_it_is_given() -> None:
    model = line()
    update = update_of(model, Slope(), optimizer="sgd", momentum=0, lr=77.0)
    for rate, weight in ((0.5, -0.5), (0.0, -0.5), (0.125, -0.625)):
        update(grey(0), None, 0.0, rate)
        assert model.weight.item() == weight
        assert [group["lr"] for group in update.optimizer.param_groups] == [rate]
        assert all(type(group["lr"]) is float for group in update.optimizer.param_groups)


@pytest.mark.parametrize("compiles", [False, True])
def test_the_compiler_is_set_up_for_the_loss_alone(compiles: bool) -> None:
    def settings() -> tuple[bool, int]:
        return functorch_config.ban_recompute_used_far_apart, dynamo_config.recompile_limit

    before, seen = settings(), []
    update = update_of(line(), Slope(), optimizer="sgd", momentum=0, compile=compiles)

    def loss_of(*arguments: Any) -> tuple[Tensor, Logs]:
        seen.append(settings())
        return Slope()(*arguments)

    update.loss_of = loss_of
    update(grey(0), None, 0.0, 0.5)
    assert seen == [(False, 64) if compiles else before]
    assert settings() == before


def test_a_learning_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    """A captured step reads it where it was."""
    model = line()
    rate = torch.tensor(77.0)
    update = Update(model, Slope(), torch.optim.SGD(model.parameters(), lr=rate), TrainOptions(), CPU)
    update(grey(0), None, 0.0, 0.5)
    assert update.optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.5
    assert model.weight.item() == -0.5


def test_steps_are_those_of_a_loop_written_by_hand() -> None:
    """Three steps of SGD with momentum and weight decay, with a learning rate of its own in each."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    weights = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    velocities = [torch.zeros_like(weight) for weight in weights]
    update = update_of(model, Plain(), optimizer="sgd", momentum=0.9, weight_decay=0.01)
    losses = []
    for rate in (0.1, 0.3, 0.05):
        batch = Batch(torch.rand(6, 1, 3, 3, dtype=torch.float64), torch.randint(0, 3, (6,)))
        update(batch, None, 0.0, rate)

        hidden = torch.tanh(F.linear(batch.images.flatten(1), weights[0], weights[1]))
        loss = F.cross_entropy(F.linear(hidden, weights[2], weights[3]), batch.targets)
        losses.append(loss.item())
        for weight, velocity, gradient in zip(weights, velocities, torch.autograd.grad(loss, weights), strict=True):
            with torch.no_grad():
                velocity.mul_(0.9).add_(gradient + 0.01 * weight)
                weight -= rate * velocity
    torch.testing.assert_close(list(model.parameters()), weights, rtol=1e-12, atol=1e-14)
    assert update.means()["loss"] == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_only_what_the_optimiser_has_is_trained() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 4).requires_grad_(False), nn.Linear(4, 3))
    before = copy.deepcopy(model.state_dict())
    update = update_of(model, Plain(), optimizer="sgd")
    update(Batch(torch.rand(6, 1, 3, 3), torch.arange(6) % 3), None, 0.0, 0.1)
    assert [parameter.shape for parameter in update.trained] == [(3, 4), (3,)]
    assert {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])} == {
        "2.weight",
        "2.bias",
    }


def test_held_batches_are_copies_that_later_ones_are_copied_to() -> None:
    """What a captured step reads must stay where it is, and pixels are in the order of fast convolutions."""
    update = update_of(line(), Slope())
    pairs = [
        (
            Batch(torch.rand(3, 2, 4, 4), torch.arange(3) + n),
            Batch(torch.rand(3, 2, 4, 4), noise=torch.rand(3, 2, 4, 4)),
        )
        for n in range(2)
    ]
    first = copy.deepcopy(pairs[0])
    places = []
    for pair in pairs:
        update._hold(*pair)
        assert update.held is not None
        inside, outside = update.held
        assert outside is not None
        assert inside.noise is None
        assert outside.labels is None
        for held, given in ((inside, pair[0]), (outside, pair[1])):
            assert torch.equal(held.images, given.images)
            assert held.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(inside.targets, pair[0].targets)
        assert outside.noise is not None
        assert pair[1].noise is not None
        assert torch.equal(outside.noise, pair[1].noise)
        places.append([x.data_ptr() for x in (inside.images, inside.targets, outside.images, outside.noise)])
    assert places[0] == places[1]
    assert torch.equal(pairs[0][0].images, first[0].images)
    assert torch.equal(pairs[0][1].images, first[1].images)


def test_a_step_without_an_out_distribution_can_be_held() -> None:
    update = update_of(line(), Slope())
    for value in (0.25, 0.75):
        update._hold(grey(value), None)
        assert update.held is not None
        assert update.held[1] is None
        assert torch.equal(update.held[0].images, grey(value).images)


@pytest.mark.parametrize("compile", [True, False])
def test_nothing_is_captured_on_a_cpu(compile: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda objective: objective)
    model = line()
    update = update_of(model, Slope(), optimizer="sgd", momentum=0, compile=compile)
    for _ in range(WARM_UP + 2):
        update(grey(0), None, 0.0, 0.5)
    assert update.graph is None
    assert model.weight.item() == -0.5 * (WARM_UP + 2)


# Captured steps


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are captured on a GPU only")
quietly = pytest.mark.filterwarnings("default")  # compilers have advice to give
STEPS = 12


def drawn(step: int, device: torch.device) -> tuple[Batch, Batch]:
    random = torch.Generator().manual_seed(step)
    x, z, noise = torch.rand(3, 16, 1, 8, 8, generator=random).to(device)
    return Batch(x), Batch(z, noise=noise * 2 - 1)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).cpu().double()


def train(compile: bool, device: torch.device, bound: Any, kind: torch.dtype = torch.float32) -> tuple[Any, ...]:
    """A small discriminator after the steps, with a rate that changes; its weights before, and what was logged."""
    torch.manual_seed(0)
    model = discriminator("digits", image=(1, 8, 8)).to(device, kind).train()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the loop does
    before = flat(model)
    objective = CertifiedDiscriminator(eps=0.05, bound=bound, eps_ramp=8, kappa_ramp=8)
    update = update_of(model, objective, device, optimizer="sgd", momentum=0.9, compile=compile)
    means = []
    for step in range(STEPS):
        pair = drawn(step, device)
        if kind != torch.float32:
            assert pair[1].noise is not None
            pair = Batch(pair[0].images.to(kind)), Batch(pair[1].images.to(kind), noise=pair[1].noise.to(kind))
        update(*pair, float(step), 0.02 / (1 + step))
        if step in (STEPS // 2 + 1, STEPS - 1):
            means.append(update.means())
    return update, before, flat(model), means


def assert_same_training(one: tuple[Any, ...], two: tuple[Any, ...]) -> None:
    (_, before, found, means), (_, _, expected, others) = one, two
    moved = (expected - before).norm()
    assert 0.1 * before.norm() < moved < before.norm()
    assert (found - expected).norm() < 1e-3 * moved
    for mean, other in zip(means, others, strict=True):
        assert mean == pytest.approx(other, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("bound", ["crown-ibp", "ibp"])
def test_the_comparison_of_trainings_bears_the_rounding_of_float32(bound: Any) -> None:
    """What the test below asks of a GPU, two precisions fulfil here: it does not fail by chance."""
    assert_same_training(train(False, CPU, bound), train(False, CPU, bound, torch.float64))


@on_gpu
@quietly
@pytest.mark.parametrize("bound", ["crown-ibp", "ibp"])
def test_captured_steps_are_the_eager_ones(bound: Any) -> None:
    device = torch.device("cuda")
    with strict(device, transforms=True):  # in TF32, kernels differ in the third digit
        captured, eager = train(True, device, bound), train(False, device, bound)
    assert captured[0].graph is not None
    assert eager[0].graph is None
    assert_same_training(captured, eager)


@on_gpu
@quietly
def test_a_replayed_step_takes_the_batch_and_the_learning_rate_that_it_is_given() -> None:
    device = torch.device("cuda")
    update, *_ = train(True, device, "ibp")
    assert update.graph is not None
    weights = flat(update.model)
    seen = []
    for step in range(2):  # a rate of zero: nothing moves, and the loss is that of the batch
        update(*drawn(step, device), 9.0, 0.0)
        seen.append(update.means())
    assert torch.equal(flat(update.model), weights)
    assert seen[0]["loss"] != seen[1]["loss"]
    update(*drawn(0, device), 9.0, 0.0)
    assert update.means()["loss"] == pytest.approx(seen[0]["loss"], rel=1e-5)
    assert seen[0]["eps"] == pytest.approx(0.05)
    update(*drawn(0, device), 4.0, 0.02)
    assert update.means()["eps"] == pytest.approx(0.025)
    assert not torch.equal(flat(update.model), weights)
