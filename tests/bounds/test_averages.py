"""Networks that average the image first: their bounds are about the ball at full size, and lose nothing there."""

from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import BlockedLinear, Box, Budget, Method, NegativeLinear, Norm, Normalise, upper_bound
from prood.bounds.tighter.windows import _has_windows

METHODS = tuple(method for method in get_args(Method) if method != "auto")
QUICK = Budget(steps=4, splits=6, split_steps=2, seconds=20, batch=8)
ORDER = {"l2": 2, "l1": 1}


def inner(seed: int) -> list[nn.Module]:
    """For 2×6×6 images."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()]
    layers += [nn.Flatten(), BlockedLinear(36, 8), nn.ReLU(), NegativeLinear(8)]
    for layer in layers:
        if isinstance(layer, nn.Conv2d | BlockedLinear):
            layer.weight.data.mul_(2)
    layers[-1].log_weight.data.sub_(1)
    return layers


def behind(front: list[int], seed: int) -> nn.Sequential:
    pools = [nn.AvgPool2d(side) for side in front]
    return nn.Sequential(Normalise([0.4, 0.6], [0.3, 0.2]), *pools, *inner(seed)).eval()


def shrunk(eps: float, norm: Norm, factor: int) -> float:
    """The radius of the ball that the averages of a ball's points fill."""
    return eps / factor ** {"linf": 0, "l2": 1, "l1": 2}[norm]


CASES = [([2], (12, 12)), ([2, 2], (24, 24)), ([4], (24, 24)), ([3], (20, 19)), ([2, 3], (37, 36))]


@pytest.mark.slow
@pytest.mark.parametrize(("front", "sides"), CASES)
@pytest.mark.parametrize("arithmetic", ["sound", "plain"])
def test_no_point_of_the_large_ball_exceeds_a_bound(
    front: list[int],
    sides: tuple[int, int],
    arithmetic: str,
    inside: Callable[..., Tensor],
    climb: Callable[..., Tensor],
) -> None:
    net, eps = behind(front, 1), torch.tensor([0.0, 0.003, 0.03, 0.3])
    images = torch.rand(4, 2, *sides)
    images[:, 0, 0] = images[:, 0, 0].round()
    box = Box.ball(images, eps)
    found = climb(net, box)
    with torch.no_grad():
        for points in inside(box, 6):
            found = torch.maximum(found, net(points)[:, 0])
    slack = 0.0 if arithmetic == "sound" else 1e-5
    tightest = torch.full((4,), torch.inf)
    for method in METHODS:
        bound = upper_bound(net, images, eps, method=method, arithmetic=arithmetic, budget=QUICK).detach()
        assert (found <= bound + slack).all(), method
        tightest = torch.minimum(tightest, bound)
    assert (tightest[0] - found[0]) < 1e-3  # at radius 0 it is the value itself


@pytest.mark.parametrize("norm", get_args(Norm))
@pytest.mark.parametrize(("front", "factor"), [([2], 2), ([2, 2], 4), ([3], 3)])
def test_the_bound_is_that_of_the_averages(norm: Norm, front: list[int], factor: int) -> None:
    """Of images with room on all sides: there the averages of the large ball are the small ball exactly."""
    small = 0.3 + 0.4 * torch.rand(3, 2, 6, 6, generator=torch.manual_seed(5))
    large = small.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    eps = {"linf": 0.02, "l2": 0.2, "l1": 0.25}[norm]
    # "ibp" knows the box alone, and descent in the ℓ1 norm ends elsewhere: many pixels share what one average has.
    for method in {"linf": ("ibp", "best", "alpha-crown", "crown"), "l2": ("best", "crown"), "l1": ("best",)}[norm]:
        one = upper_bound(behind([], 2), small, shrunk(eps, norm, factor), norm=norm, method=method, budget=QUICK)
        other = upper_bound(behind(front, 2), large, eps, norm=norm, method=method, budget=QUICK)
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize(("front", "sides"), CASES[:4])
def test_no_point_of_an_l2_or_l1_ball_exceeds_a_bound(norm: Norm, front: list[int], sides: tuple[int, int]) -> None:
    net, images, eps = behind(front, 3), torch.rand(3, 2, *sides), torch.tensor([0.1, 1.0, 8.0])
    images[:, 1, :, 0] = 0
    best = torch.full((3,), -torch.inf)
    step = torch.zeros_like(images)
    for start in range(40):
        if start % 10 == 0:
            step = torch.randn_like(images) * (torch.rand_like(images) < (1.0 if start else 0.02))
        size = torch.linalg.vector_norm(step.flatten(1).double(), ORDER[norm], dim=1)
        point = (images + (step.double() * (eps / size).view(-1, 1, 1, 1) * (1 - 1e-6)).float()).clamp(0, 1)
        value = net(point.requires_grad_())[:, 0]
        (gradient,) = torch.autograd.grad(value.sum(), point)
        best = torch.maximum(best, value.detach())
        if norm == "l1":  # on the pixels of the square that helps most
            gradient = gradient * (gradient.abs() >= 0.999 * gradient.abs().amax((1, 2, 3), keepdim=True))
        step = (point.detach() - images) + 0.5 * eps.view(-1, 1, 1, 1) * nn.functional.normalize(
            gradient.flatten(1), p=ORDER[norm]
        ).view_as(images)
    for method in ("ibp", "best", "alpha-crown", "crown"):
        bound = upper_bound(net, images, eps, norm=norm, method=method, budget=QUICK)
        assert (best <= bound).all(), method


@pytest.mark.parametrize("sides", [(12, 12), (13, 12), (12, 15)])
def test_windows_pass_through_averages_that_leave_a_rest(sides: tuple[int, int]) -> None:
    """Else the planes of hidden units would be as large as the image."""
    layer = nn.AvgPool2d(4)
    box = Box.ball(torch.rand(1, 2, *sides), 0.1)
    assert _has_windows(layer, box)
    assert not _has_windows(nn.AvgPool2d(4, ceil_mode=True), box)
