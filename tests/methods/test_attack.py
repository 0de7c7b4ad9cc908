"""The inner attack: it stays in the ball, climbs, and leaves the network as it found it."""

import pytest
import torch
from torch import Tensor, nn

from prood.errors import BadValue
from prood.methods import Batch, Step
from prood.methods.base import Adversarial, climb, deployed

EPS = torch.tensor(0.1)


def batch(count: int = 6) -> Batch:
    torch.manual_seed(1)
    images = torch.rand(count, 1, 4, 4, dtype=torch.float64)
    images[0] = images[0].round()  # half of its ball lies outside of [0, 1]
    return Batch(images, noise=torch.rand_like(images) * 2 - 1)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)]
    return nn.Sequential(*layers).double()


def test_on_a_linear_height_one_long_step_is_the_optimum() -> None:
    """max over the ball inside [0, 1] of w·x has the closed form Σ w·(high where w > 0, else low)."""
    given = batch()
    w = torch.randn(1, 4, 4, dtype=torch.float64)
    found = climb(lambda images: (w * images).sum((1, 2, 3)), given, EPS, steps=1, step_size=2.0)
    low, high = (given.images - EPS).clamp(0, 1), (given.images + EPS).clamp(0, 1)
    torch.testing.assert_close(found, torch.where(w > 0, high, low), rtol=0, atol=1e-12)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_it_is_the_textbook_attack(steps: int) -> None:
    """u ← P(u + α·sign ∇h(u)), image by image, with autograd."""
    model, given = network().eval(), batch()

    def height(images: Tensor) -> Tensor:
        return model(images).square().sum(1)

    found = climb(height, given, EPS, steps=steps, step_size=0.3)
    assert given.noise is not None
    for row in range(len(given.images)):
        clean, u = given.images[row], given.images[row] + EPS * given.noise[row]
        u = u.clamp(0, 1)
        for _ in range(steps):
            u = u.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(height(u[None])[0], u)
            u = u.detach() + 0.3 * EPS * slope.sign()
            u = torch.minimum(torch.maximum(u, clean - EPS), clean + EPS).clamp(0, 1)
        torch.testing.assert_close(found[row], u.detach(), rtol=0, atol=1e-9)
    assert ((found - given.images).abs() <= EPS + 1e-9).all()
    assert ((found >= 0) & (found <= 1)).all()
    assert not found.requires_grad


def test_the_network_is_attacked_as_deployed_and_left_as_it_was() -> None:
    model, given = network(), batch()
    model.train()
    model[0].eval()  # a part that is frozen
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen = []

    def height(images: Tensor) -> Tensor:
        seen.append([part.training for part in model.modules()])
        return model(images).amax(1)

    found = Adversarial(eps=0.1, attack_steps=3).attack(model, given, EPS, height)
    assert seen == [[False] * 6] * 3
    assert [part.training for part in model.modules()] == [True, False, True, True, True, True]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} was touched"
    assert all(parameter.grad is None for parameter in model.parameters())
    with deployed(model):
        assert (model(found).amax(1) > model(given.images).amax(1)).all()


def test_the_radius_grows_with_the_ramp() -> None:
    objective = Adversarial(eps=0.4, eps_ramp=4)
    radii = [objective.radius(Step(torch.tensor(epoch))).item() for epoch in (0.0, 1.0, 4.0, 9.0)]
    assert radii == pytest.approx([0, 0.1, 0.4, 0.4])
    assert Adversarial(eps=0.4).radius(Step(torch.tensor(0.0))).item() == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("options", "word"), [({"eps": -0.1}, "eps"), ({"eps": 2.0}, "eps"), ({"attack_steps": -1}, "steps")]
)
def test_wrong_options_are_refused(options: dict[str, float], word: str) -> None:
    with pytest.raises(BadValue, match=word):
        Adversarial(**options)  # type: ignore[arg-type]
