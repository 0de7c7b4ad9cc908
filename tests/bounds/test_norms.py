"""ℓ2 and ℓ1 balls: no point of them exceeds the bound, and where the answer is known the bound is it."""

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import BlockedLinear, Method, NegativeLinear, Norm, Normalise, upper_bound
from prood.bounds.certificate import Arithmetic
from prood.errors import UnknownName

SHAPE = (2, 5, 5)
EPS = torch.tensor([0.0, 0.02, 0.1, 0.5, 2.0])
ORDER = {"l2": 2, "l1": 1}


def network(seed: int, kind: str) -> nn.Sequential:
    torch.manual_seed(seed)
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(50, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
    layers = [Normalise([0.4, 0.6], [0.3, 0.2]), nn.Conv2d(2, 4, 3, padding=1), nn.ReLU()]
    layers += [nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), BlockedLinear(36, 6), nn.ReLU()]
    return nn.Sequential(*layers, NegativeLinear(6)).eval()


def shorten(step: Tensor, norm: Norm, eps: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(step.double().flatten(1), ORDER[norm], dim=1)
    factor = (eps.double() / length.clamp_min(1e-300)).clamp(max=1) * (1 - 1e-9)
    return (step.double() * factor.view(-1, 1, 1, 1)).float()


def highest(net: nn.Module, images: Tensor, norm: Norm, eps: Tensor) -> Tensor:
    """The largest values that random points and a projected ascent find in the balls, exactly inside."""
    best = torch.full((len(images),), -torch.inf)
    for start in range(6):
        step = torch.randn_like(images) * (torch.rand_like(images) < (1.0 if start < 3 else 0.1))
        for _ in range(15):
            point = (images + shorten(step, norm, eps)).clamp(0, 1)
            inside = torch.linalg.vector_norm((point.double() - images.double()).flatten(1), ORDER[norm], dim=1)
            with torch.enable_grad():
                point.requires_grad_()
                value = net(point)[:, 0]
                (gradient,) = torch.autograd.grad(value.sum(), point)
            best = torch.where(inside <= eps.double(), torch.maximum(best, value.detach()), best)
            if norm == "l1":  # all on the coordinate that helps most
                top = gradient.flatten(1).abs().argmax(1)
                gradient = (
                    torch.zeros_like(gradient)
                    .flatten(1)
                    .scatter(1, top[:, None], gradient.flatten(1).gather(1, top[:, None]).sign())
                    .view_as(gradient)
                )
            step = (point.detach() - images) + eps.view(-1, 1, 1, 1) * 0.4 * nn.functional.normalize(
                gradient.flatten(1)
            ).view_as(images)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("arithmetic", ["sound", "plain"])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
@pytest.mark.parametrize("seed", range(3))
def test_no_point_of_the_ball_exceeds_the_bounds(norm: Norm, arithmetic: Arithmetic, kind: str, seed: int) -> None:
    net = network(seed, kind)
    images = torch.rand(len(EPS), *SHAPE)
    images[:, 0, 0] = torch.rand(len(EPS), 5).round()  # pixels at the ends of their range
    found = highest(net, images, norm, EPS)
    bounds = {
        method: upper_bound(net, images, EPS, norm=norm, method=method, arithmetic=arithmetic).detach()
        for method in ("ibp", "best", "alpha-crown", "crown")
    }
    slack = 0.0 if arithmetic == "sound" else 1e-5
    for method, bound in bounds.items():
        assert (found <= bound + slack).all(), method
    assert (bounds["best"] <= bounds["ibp"] + slack).all()
    assert (bounds["alpha-crown"] <= bounds["best"]).all()
    assert (bounds["crown"] <= bounds["alpha-crown"]).all()
    # The ball is a part of the ℓ∞ ball of the same radius, and the bound knows.
    around = upper_bound(net, images, EPS, method="ibp", arithmetic=arithmetic).detach()
    assert (bounds["best"] <= around + slack).all()
    assert (bounds["best"][1:4] < around[1:4] - 1e-4).any()


@pytest.mark.parametrize(("norm", "dual"), [("l2", 2), ("l1", torch.inf)])
@pytest.mark.parametrize("method", ["best", "crown-ibp"])
def test_of_an_affine_network_it_is_the_dual_norm(norm: Norm, dual: float, method: Method) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(50, 1))
    images = torch.full((3, *SHAPE), 0.5)
    eps = torch.tensor([0.0, 0.1, 0.3])
    (weight,) = net[1].weight.double()
    expected = net(images)[:, 0].double() + eps.double() * torch.linalg.vector_norm(weight, dual)
    bound = upper_bound(net, images, eps, norm=norm, method=method)
    torch.testing.assert_close(bound.double(), expected, rtol=0, atol=1e-5)
    assert (bound.double() >= net(images)[:, 0].double()).all()


def test_the_cube_cuts_the_ball() -> None:
    """In a corner of the cube half of all directions lead nowhere."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(50, 1, bias=False))
    with torch.no_grad():
        net[1].weight.fill_(-1.0)
    corner = torch.zeros(1, *SHAPE)
    for norm in ("l2", "l1"):
        assert upper_bound(net, corner, 0.5, norm=norm).item() == pytest.approx(0, abs=1e-3)  # type: ignore[arg-type]
        free = upper_bound(net, corner, 0.5, norm=norm, clip=None).item()  # type: ignore[arg-type]
        assert free == pytest.approx(0.5 * (50**0.5 if norm == "l2" else 1), rel=1e-3)


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"'l3'.*l2.*l1"):
        upper_bound(network(0, "linear"), torch.rand(1, *SHAPE), 0.1, norm="l3")  # type: ignore[arg-type]
