import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import NegativeLinear, Normalise
from prood.methods import Batch, CertifiedDiscriminator, Step
from prood.models import Discriminator, discriminator

EPS = 0.0625  # a number that float32 holds exactly


def at(epoch: float) -> Step:
    return Step(torch.tensor(epoch))


def network() -> Discriminator:
    """A float64 discriminator on 8×8 images whose units are partly dead, partly unstable, partly active."""
    torch.manual_seed(3)
    return discriminator("digits", image=(1, 8, 8)).double()


def mlp() -> Discriminator:
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(9, 12), nn.ReLU(), nn.Linear(12, 10), nn.ReLU(), NegativeLinear(10)]
    return Discriminator(nn.Sequential(*layers)).double()


def batches(side: int = 8, count: int = 5) -> tuple[Batch, Batch]:
    torch.manual_seed(1)
    x, z = torch.rand(2, count, 1, side, side, dtype=torch.float64)
    z[0] = z[0].round()  # an image of zeros and ones: half of its ball lies outside of [0, 1]
    return Batch(x), Batch(z, noise=torch.rand_like(z) * 2 - 1)


def test_only_what_attacks_asks_for_noise() -> None:
    assert CertifiedDiscriminator(bound="crown-ibp").needs_noise
    objective, (inside, outside) = CertifiedDiscriminator(bound="ibp"), batches()
    assert not objective.needs_noise
    with_noise = objective(network(), inside, outside, at(1))[0]
    assert torch.equal(objective(network(), inside, replace(outside, noise=None), at(1))[0], with_noise)


def naive_bounds(g: Discriminator, images: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Eq. 6 as it is printed: lower and upper ends, positive and negative weights apart."""
    low, high = (images - eps).clamp(0, 1), (images + eps).clamp(0, 1)
    for layer in [*g.body, *g.tail]:
        if isinstance(layer, nn.Linear | nn.Conv2d | NegativeLinear):
            plus, minus = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            if isinstance(layer, nn.Conv2d):
                options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding}
                low, high = (
                    F.conv2d(low, plus, layer.bias, **options) + F.conv2d(high, minus, None, **options),
                    F.conv2d(high, plus, layer.bias, **options) + F.conv2d(low, minus, None, **options),
                )
            else:
                low, high = (
                    F.linear(low, plus, layer.bias) + F.linear(high, minus),
                    F.linear(high, plus, layer.bias) + F.linear(low, minus),
                )
        else:
            assert isinstance(layer, nn.ReLU | nn.AvgPool2d | nn.Flatten | Normalise)  # they do not decrease
            low, high = layer(low), layer(high)
    return low[:, 0], high[:, 0]


def paper_loss(g_in: Tensor, bound: Tensor, kappa: float) -> Tensor:
    return (1 + torch.exp(-g_in)).log().mean() + kappa * (1 + torch.exp(bound)).log().mean()


def official_loss(g_in: Tensor, bound: Tensor, kappa: float) -> Tensor:
    return (math.e + torch.exp(-g_in)).log().mean() + kappa * (math.e + torch.exp(bound)).log().mean()


@pytest.mark.parametrize(("variant", "formula"), [("paper", paper_loss), ("official", official_loss)])
@pytest.mark.parametrize(
    ("epoch", "eps", "kappa"), [(0.0, 0.0, 0.0), (1.0, EPS / 4, 0.5), (2.0, EPS / 2, 1.0), (9.0, EPS, 1.0)]
)
def test_the_loss_is_eq_5_with_both_ramps(variant: Any, formula: Any, epoch: float, eps: float, kappa: float) -> None:
    g, (inside, outside) = network(), batches()
    objective = CertifiedDiscriminator(eps=EPS, bound="ibp", eps_ramp=4, kappa_ramp=2, loss=variant)
    loss, logs = objective(g, inside, outside, at(epoch))
    _, bound = naive_bounds(g, outside.images, eps)
    torch.testing.assert_close(loss, formula(g(inside.images), bound, kappa), rtol=1e-10, atol=0)
    assert logs["eps"].item() == eps
    torch.testing.assert_close(logs["g_out_bound"], bound.mean(), rtol=1e-10, atol=0)
    torch.testing.assert_close(logs["g_in"], g(inside.images).mean(), rtol=1e-10, atol=0)


@pytest.mark.parametrize("bound", ["ibp", "crown-ibp"])
def test_in_the_very_first_epoch_only_the_in_distribution_counts(bound: Any) -> None:
    g, (inside, outside) = network(), batches()
    loss, logs = CertifiedDiscriminator(eps=EPS, bound=bound, kappa_ramp=3)(g, inside, outside, at(0))
    assert loss == logs["loss_in"]
    assert logs["loss_out"] > 0


def test_without_ramps_everything_counts_from_the_first_step() -> None:
    g, (inside, outside) = network(), batches()
    loss, logs = CertifiedDiscriminator(eps=EPS)(g, inside, outside, at(0))
    assert logs["eps"].item() == EPS
    torch.testing.assert_close(loss, logs["loss_in"] + logs["loss_out"])


@pytest.mark.parametrize("g", [-30.0, -1.0, 0.0, 0.5, 30.0])
def test_the_penalties(g: float) -> None:
    value = torch.tensor(g, dtype=torch.float64)
    assert math.isclose(CertifiedDiscriminator().penalty(value).item(), math.log1p(math.exp(g)), rel_tol=1e-12)
    official = CertifiedDiscriminator(loss="official").penalty(value)
    assert math.isclose(official.item(), math.log(math.e + math.exp(g)), rel_tol=1e-12)


def naive_crown_ibp(g: Discriminator, image: Tensor, eps: float, attacked: Tensor) -> float:
    """One backward pass by matrices for the two-layer `mlp`, with the slopes as the notes describe them."""
    w1, b1, w2, b2 = g.body[1].weight, g.body[1].bias, g.body[3].weight, g.body[3].bias
    x_low, x_high = ((image + sign * eps).clamp(0, 1).flatten() for sign in (-1, 1))

    def affine_box(w: Tensor, b: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return (
            w.clamp(min=0) @ low + w.clamp(max=0) @ high + b,
            w.clamp(min=0) @ high + w.clamp(max=0) @ low + b,
        )

    l1, u1 = affine_box(w1, b1, x_low, x_high)
    l2, u2 = affine_box(w2, b2, l1.clamp(min=0), u1.clamp(min=0))
    active = g.body(attacked[None])[0] > 0

    # All weights into g are negative: each hidden unit counts with its lower relaxation alpha·y.
    slope = torch.zeros(10, dtype=torch.float64)
    for j in range(10):
        if l2[j] >= 0:
            alpha = 1.0
        elif u2[j] <= 0:
            alpha = 0.0
        else:
            alpha = float(active[j])
        slope[j] = g.last.weight[0, j] * alpha
    offset = g.last.bias[0] + slope @ b2
    slope = slope @ w2
    for i in range(12):
        low, high = l1[i], u1[i]
        if high <= 0:
            slope[i] = 0
        elif low < 0:
            if slope[i] > 0:  # below the chord from (low, 0) to (high, high)
                slope[i] = slope[i] * high / (high - low)
                offset = offset - slope[i] * low
            else:
                slope[i] = slope[i] * (1.0 if low + high > 0 else 0.0)
    offset = offset + slope @ b1
    slope = slope @ w1
    return (torch.where(slope > 0, slope * x_high, slope * x_low).sum() + offset).item()


@pytest.mark.parametrize("eps", [0.0625, 0.25])
@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_the_multi_task_loss_is_its_formula(eps: float, weight: float) -> None:
    g, (inside, outside) = mlp(), batches(side=3, count=8)
    objective = CertifiedDiscriminator(eps=eps, certified_weight=weight)
    loss, logs = objective(g, inside, outside, at(0))
    attacked = objective.attack(g, outside, torch.tensor(eps))
    pairs = zip(outside.images, attacked, strict=True)
    upper = torch.tensor([naive_crown_ibp(g, z, eps, found) for z, found in pairs], dtype=torch.float64)
    out = (1 - weight) * F.softplus(g(attacked)).mean() + weight * F.softplus(upper).mean()
    torch.testing.assert_close(logs["g_out_bound"], upper.mean(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(logs["g_out_attacked"], g(attacked).mean(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(loss, F.softplus(-g(inside.images)).mean() + out, rtol=1e-10, atol=0)
    assert (upper > g(attacked)).any()  # the comparison is of something


@pytest.mark.parametrize("make", [network, mlp])
@pytest.mark.parametrize("eps", [0.01, 0.1, 0.5])
def test_the_bounds_are_never_below_g_at_attacked_points(make: Any, eps: float) -> None:
    g = make()
    inside, outside = batches(side=8 if make is network else 3, count=20)
    objective = CertifiedDiscriminator(eps=eps, attack_steps=10, attack_step_size=0.3, certified_weight=1.0)
    radius = torch.tensor(eps).double()  # eps travels in float32
    for row in range(20):
        one = Batch(outside.images[row : row + 1], noise=outside.noise[row : row + 1])  # type: ignore[index]
        _, logs = objective(g, inside, one, at(0))
        bound = logs["g_out_bound"].item()
        assert bound >= logs["g_out_attacked"].item() - 1e-12
        low, high = (one.images - radius).clamp(0, 1), (one.images + radius).clamp(0, 1)
        corners = torch.where(torch.rand(50, *one.images.shape[1:]) < 0.5, low, high)
        assert bound >= g(corners).max().item() - 1e-12


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
@pytest.mark.parametrize("eps", [0.0, 0.1, 0.7])
def test_the_attack_stays_in_the_ball_and_in_the_unit_box(steps: int, eps: float) -> None:
    g, (_, outside) = network(), batches()
    attacked = CertifiedDiscriminator(attack_steps=steps).attack(g, outside, torch.tensor(eps))
    assert ((attacked - outside.images).abs() <= eps + 1e-7).all()  # eps is a float32 here
    assert ((attacked >= 0) & (attacked <= 1)).all()
    assert not attacked.requires_grad


def test_the_attack_climbs() -> None:
    g, (_, outside) = network(), batches(count=40)
    g_after = [
        g(CertifiedDiscriminator(attack_steps=steps).attack(g, outside, torch.tensor(0.1))) for steps in (0, 1, 2)
    ]
    assert g_after[0].mean() < g_after[1].mean() <= g_after[2].mean() + 1e-6
    assert (g_after[2] >= g_after[0]).float().mean() > 0.9


def test_the_attack_starts_at_the_noise_and_leaves_no_gradients_behind() -> None:
    g, (_, outside) = network(), batches()
    start = CertifiedDiscriminator(attack_steps=0).attack(g, outside, torch.tensor(EPS))
    assert outside.noise is not None
    torch.testing.assert_close(start, (outside.images + EPS * outside.noise).clamp(0, 1))
    CertifiedDiscriminator(attack_steps=3).attack(g, outside, torch.tensor(EPS))
    assert all(parameter.grad is None for parameter in g.parameters())
    assert not outside.images.requires_grad


@pytest.mark.parametrize("make", [network, mlp])
@pytest.mark.parametrize(
    "objective",
    [
        CertifiedDiscriminator(eps=EPS, bound="ibp"),
        CertifiedDiscriminator(eps=EPS, bound="ibp", loss="official", kappa_ramp=4),
        # Without steps the attacked point does not move with the weights, and the loss is a function of them alone.
        CertifiedDiscriminator(eps=EPS, attack_steps=0),
        CertifiedDiscriminator(eps=EPS, attack_steps=0, certified_weight=1.0, loss="official"),
    ],
    ids=["ibp", "ibp-official", "multi-task", "certified-only"],
)
def test_the_gradient_is_that_of_finite_differences(make: Any, objective: CertifiedDiscriminator) -> None:
    g, (inside, outside) = make(), batches(side=8 if make is network else 3)
    objective(g, inside, outside, at(1))[0].backward()
    for name, parameter in g.named_parameters():
        assert parameter.grad is not None, name
        direction, step = torch.randn_like(parameter), 1e-7
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * step * direction
            ends.append(objective(g, inside, outside, at(1))[0].item())
            with torch.no_grad():
                parameter -= sign * step * direction
        slope = (ends[0] - ends[1]) / (2 * step)
        assert math.isclose(slope, (parameter.grad * direction).sum().item(), rel_tol=1e-5, abs_tol=1e-7), name


def test_the_logged_numbers_do_not_disturb_the_gradient() -> None:
    g, (inside, outside) = network(), batches()
    objective = CertifiedDiscriminator(eps=EPS, kappa_ramp=1)
    gradients = []
    for keep in (True, False):
        g.zero_grad()
        loss, logs = objective(g, inside, outside, at(1))
        (loss if keep else loss + 0 * logs["live"]).backward()
        gradients.append([parameter.grad.clone() for parameter in g.parameters()])  # type: ignore[union-attr]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


# A discriminator that has gone constant


def logs_of(g: Discriminator, objective: CertifiedDiscriminator) -> dict[str, float]:
    inside, outside = batches()
    return {name: value.item() for name, value in objective(g, inside, outside, at(9))[1].items()}


@pytest.mark.parametrize("bound", ["ibp", "crown-ibp"])
def test_a_fresh_network_is_healthy(bound: Any) -> None:
    objective = CertifiedDiscriminator(eps=0.01, bound=bound)
    assert objective.diagnose(logs_of(network(), objective)) is None


@pytest.mark.parametrize("bound", ["ibp", "crown-ibp"])
@pytest.mark.parametrize("bias", [-1e3, 1e3])
def test_a_constant_g_is_noticed_with_what_to_change(bound: Any, bias: float) -> None:
    """Dead last hidden units, or hidden units that are alive but say the same about every image."""
    g, objective = network(), CertifiedDiscriminator(eps=0.01, bound=bound)
    with torch.no_grad():
        g.body[-1].weight.zero_()
        g.body[-1].bias.fill_(bias)
    complaint = objective.diagnose(logs_of(g, objective))
    assert complaint is not None
    assert "has gone constant" in complaint
    assert "eps_ramp" in complaint
    assert "learning rate" in complaint
    assert ("crown-ibp" in complaint) == (bound == "ibp")


@pytest.mark.parametrize("bound", ["ibp", "crown-ibp"])
def test_a_perfect_discriminator_is_no_constant_one(bound: Any) -> None:
    """All hidden units asleep on the in-distribution, where g is then the bias, and awake on the out-distribution."""
    layers = [nn.Flatten(), nn.Linear(64, 3), nn.ReLU(), NegativeLinear(3)]
    g = Discriminator(nn.Sequential(*layers))
    with torch.no_grad():
        g.body[1].weight.fill_(1.0)
        g.body[1].bias.fill_(-32.0)
    dark, bright = torch.rand(2, 6, 1, 8, 8) * 0.2
    objective = CertifiedDiscriminator(eps=0.01, bound=bound)
    _, logs = objective(g, Batch(dark), Batch(bright + 0.8, noise=torch.zeros_like(bright)), at(0))
    assert g(dark).std() == 0
    assert objective.diagnose({name: value.item() for name, value in logs.items()}) is None


def test_it_is_a_frozen_set_of_options_that_compares_by_value() -> None:
    objective = CertifiedDiscriminator(eps=0.1)
    assert objective == replace(objective)
    with pytest.raises(AttributeError):
        objective.eps = 0.2  # type: ignore[misc]
