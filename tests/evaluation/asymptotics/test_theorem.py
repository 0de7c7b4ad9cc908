"""Theorem 1 on a given network: ours pass, and wrong ones are refused with the reason."""

from pathlib import Path

import pytest
import torch
from torch import nn

from prood import pretrained
from prood.bounds import NegativeLinear
from prood.errors import MissingPackage
from prood.evaluation.asymptotics import Theorem, check_theorem, fates, random_directions
from prood.evaluation.asymptotics.theorem import EVERY, GROWING, NONE
from prood.models import Committee, Discriminator, ProoD, discriminator, load, small

PROTOTYPE = Path(__file__).parents[4] / "shared" / "models" / "discriminator-S-prototype.safetensors"


def claimed(activation: nn.Module | None = None, last: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(64, 5), activation or nn.ReLU(), last or NegativeLinear(5)]
    return nn.Sequential(*layers).eval()


def linear(*weights: float) -> nn.Linear:
    layer = nn.Linear(len(weights), 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([weights]))
    return layer


def logarithms(*values: float) -> NegativeLinear:
    layer = NegativeLinear(len(values))
    with torch.no_grad():
        layer.log_weight.copy_(torch.tensor([values]))
    return layer


def violated(model: nn.Module) -> dict[str, str]:
    found = check_theorem(model)
    assert found.holds == all(one.holds for one in found.conditions)
    assert (found.covers == NONE) == (not found.holds)
    return {one.name: one.reason for one in found.conditions if not one.holds}


def test_our_discriminators_pass() -> None:
    torch.manual_seed(0)
    g = discriminator("digits", image=(1, 28, 28)).eval()
    for model in (g, ProoD(small(4, width=4), g), g.network, discriminator("XS").eval()):
        found = check_theorem(model)
        assert found.holds, found
        assert found.covers == GROWING
        assert [one.name for one in found.conditions] == ["layers", "activation", "weights", "output"]


@pytest.mark.parametrize("name", pretrained.names())
def test_what_comes_with_prood_passes(name: str) -> None:
    try:
        model, _ = load(name)
    except MissingPackage as error:
        pytest.skip(str(error))
    assert check_theorem(model).holds


@pytest.mark.skipif(not PROTOTYPE.exists(), reason="no trained discriminator beside the checkout")
def test_a_trained_one_passes() -> None:
    from safetensors.torch import load_file

    g, weights = discriminator("S").eval(), load_file(PROTOTYPE)
    names = {"body.1": "conv1", "body.3": "conv2", "body.5": "conv3", "body.9": "hidden", "tail.1": "last"}
    for name, value in g.state_dict().items():
        layer, _, what = name.rpartition(".")
        if layer in names:
            value.copy_(weights[f"{names[layer]}.{what}"].reshape(value.shape))
    assert check_theorem(g).holds
    assert fates(g, random_directions(4, (3, 32, 32))).decays.all()


def test_negative_weights_may_be_stored_as_they_are() -> None:
    assert check_theorem(claimed(last=linear(-1, -0.5, -2, -1e-30, -3))).holds


def test_a_leaky_last_activation_is_refused() -> None:
    found = violated(claimed(nn.LeakyReLU(0.1)))
    assert list(found) == ["activation"]
    assert "LeakyReLU, not a plain ReLU" in found["activation"]


@pytest.mark.parametrize("activation", [nn.Identity(), nn.ReLU6(), nn.Tanh()])
def test_so_is_any_other_one(activation: nn.Module) -> None:
    assert type(activation).__name__ in violated(claimed(activation))["activation"]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (linear(-1, -1, 0, 0, -1), "one is zero (2 of 5)"),
        (linear(-1, -1, 0.25, -1, -1), "0.25 is positive (1 of 5)"),
        (linear(-1, -1, float("nan"), -1, -1), "nan is not finite"),
        (linear(-1, -1, -1e-42, -1, -1), "is subnormal: a processor that flushes such numbers makes it zero"),
        (logarithms(0, 0, 0, 0, -120), "one is zero, as −exp(h) underflows for h = -120 (1 of 5)"),
        (logarithms(0, 0, 0, -95, 0), "is subnormal: a processor that flushes such numbers makes it zero, as −exp(h)"),
        (logarithms(0, 0, 90, 0, 0), "-inf is not finite, as −exp(h) overflows for h = 90"),
    ],
)
def test_last_weights_that_are_not_negative_are_refused(last: nn.Module, reason: str) -> None:
    assert reason in violated(claimed(last=last))["weights"]


def test_a_weight_just_large_enough_is_not() -> None:
    assert check_theorem(claimed(last=logarithms(0, 0, 0, 0, -87))).holds
    assert check_theorem(claimed(last=logarithms(0, 0, 0, 0, 88))).holds


def test_a_discriminator_whose_weights_went_wrong_in_training_is_refused() -> None:
    g = Discriminator(claimed())
    with torch.no_grad():
        g.last.log_weight[0, 1] = -200
    assert "h = -200" in violated(g)["weights"]
    assert "h = -200" in violated(ProoD(small(4, width=4), g))["weights"]


def test_layers_that_are_not_piecewise_linear_are_refused() -> None:
    inner = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Sigmoid(), nn.Linear(8, 5), nn.ReLU(), NegativeLinear(5))
    assert violated(inner.eval()) == {"layers": "Sigmoid is not known to be piecewise linear"}


def test_a_batch_norm_counts_as_it_is_deployed() -> None:
    layers = [nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), NegativeLinear(5)]
    assert "training mode" in violated(nn.Sequential(*layers))["layers"]
    assert check_theorem(nn.Sequential(*layers).eval()).holds


def test_hooks_and_patches_are_seen() -> None:
    hooked = claimed()
    hooked[1].register_forward_hook(lambda *_: None)
    assert "hooks" in violated(hooked)["layers"]
    outer = claimed()
    outer.register_forward_hook(lambda *_: None)
    assert "not a plain row of layers" in violated(outer)["layers"]
    g = Discriminator(claimed())
    g.forward = lambda images: images  # type: ignore[method-assign,assignment]
    assert "not a plain row of layers" in violated(g)["layers"]


def test_weights_that_are_not_finite_are_seen() -> None:
    broken = claimed()
    with torch.no_grad():
        broken[1].bias[0] = torch.inf
    assert "bias of Linear holds values that are not finite" in violated(broken)["layers"]


def test_what_is_no_discriminator_at_all_is_judged_too() -> None:
    assert set(violated(small(4, width=4).eval())) == {"activation", "weights", "output"}
    assert "Linear is not a plain row" in violated(nn.Linear(3, 1))["layers"]
    wide = violated(claimed(last=nn.Conv2d(1, 1, 1)))
    assert "Conv2d, not a linear one" in wide["weights"]
    assert wide["output"] == "g must be one number per image"


def test_a_guard_covers_every_direction() -> None:
    g = Discriminator(claimed()).with_far_penalty(0.5)
    found = check_theorem(ProoD(small(4, width=4), g))
    assert (found.holds, found.covers) == (True, EVERY)
    assert found.conditions[-1].reason == "takes 0.5 times the distance to [0, 1]^d from g"
    assert "rounds to zero" in violated(g.with_far_penalty(1e-42))["far penalty"]
    leaky = g.with_far_penalty(1.0)
    leaky.tail[0] = nn.LeakyReLU(0.1)
    assert "activation" in violated(leaky)  # g ≤ b is what the far penalty builds on


def test_a_theorem_without_conditions_would_hold() -> None:
    assert Theorem((), EVERY).holds


def test_one_member_carries_a_committee():
    one, other = discriminator("digits", image=(1, 28, 28)), discriminator("digits-XS", image=(1, 28, 28))
    assert check_theorem(Committee([one, other])).covers == GROWING
    assert check_theorem(ProoD(small(4), Committee([one, other.with_far_penalty()]))).covers == EVERY
    with torch.no_grad():
        other.last.log_weight.fill_(-torch.inf)  # weights of zero: it stays where it is
    assert check_theorem(Committee([one, other])).holds
    with torch.no_grad():
        one.last.log_weight.fill_(-torch.inf)
    assert "weights" in violated(Committee([one, other]))
    hooked = Committee([discriminator("digits-XS", image=(1, 28, 28)), other])
    hooked.register_forward_hook(lambda *_: None)
    assert set(violated(hooked)) == {"layers"}
