import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prood.bounds.box import Ball, Norm, dual_bound

ROWS, SIZE = 6, 9


def draw(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    slope = torch.randn(ROWS, SIZE, generator=random, dtype=torch.float64).abs()
    slope[:, :2] *= 10 ** torch.empty(ROWS, 2, dtype=torch.float64).uniform_(-6, 6, generator=random)
    slope[0, 3] = 0
    room = torch.rand(ROWS, SIZE, generator=random, dtype=torch.float64)
    room[:, 4] = 0
    return slope, room, torch.rand(ROWS, generator=random, dtype=torch.float64) * 3


def exact_l1(slope: Tensor, room: Tensor, eps: float) -> float:
    """The best first, as far as ε reaches."""
    value, left = 0.0, eps
    for place in slope.argsort(descending=True).tolist():
        step = min(left, room[place].item())
        value, left = value + step * slope[place].item(), left - step
    return value


def exact_l2(slope: Tensor, room: Tensor, eps: float) -> float:
    """Coordinates that reach their end are fixed, and the others share what is left in proportion to their slopes."""
    if room.norm() <= eps:
        return (slope * room).sum().item()
    fixed = torch.zeros(len(slope), dtype=torch.bool)
    while True:
        left = (eps**2 - room[fixed].square().sum()).clamp(min=0).sqrt()
        length = slope[~fixed].norm()
        step = torch.where(fixed, room, slope * (left / length if length > 0 else 0))
        beyond = (step > room) & ~fixed
        if not beyond.any():
            return (slope * step).sum().item()
        fixed |= beyond


@pytest.mark.parametrize(("norm", "exact"), [("l1", exact_l1), ("l2", exact_l2)])
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_the_dual_bound_is_the_maximum_and_never_below_it(norm: Norm, exact, seed: int) -> None:
    slope, room, eps = draw(seed)
    bound = dual_bound(slope, room, eps, norm)
    for row in range(ROWS):
        best = exact(slope[row], room[row], eps[row].item())
        assert bound[row] >= best
        assert bound[row] <= best * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize(("norm", "dual"), [("l1", torch.inf), ("l2", 2)])
def test_without_a_box_it_is_the_dual_norm(norm: Norm, dual: float) -> None:
    slope, _, eps = draw(1)
    bound = dual_bound(slope, torch.full_like(slope, 1e9), eps, norm)
    expected = eps * torch.linalg.vector_norm(slope, dual, dim=1)
    assert (bound >= expected).all()
    torch.testing.assert_close(bound, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_no_radius_no_reach_and_no_slope_no_reach(norm: Norm) -> None:
    slope, room, eps = draw(2)
    assert (dual_bound(slope, room, torch.zeros_like(eps), norm) <= 1e-6 * slope.sum(1)).all()
    assert (dual_bound(torch.zeros_like(slope), room, eps, norm) <= 1e-12).all()
    steep = 1e12 * slope
    assert (dual_bound(steep, room, torch.zeros_like(eps), norm) <= 1e-6 * steep.sum(1)).all()


def test_an_endless_ball_reaches_as_far_as_its_box() -> None:
    slope, room, eps = draw(2)
    bound = dual_bound(slope, room, torch.full_like(eps, math.inf), "l2")
    torch.testing.assert_close(bound, (slope * room).sum(1))


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_no_point_of_ball_and_box_reaches_further(norm: Norm) -> None:
    torch.manual_seed(0)
    centre = torch.rand(4, 2, 3)
    eps = torch.tensor([0.0, 0.05, 0.4, 2.0], dtype=torch.float64)
    ball = Ball(norm, centre.double(), eps)
    lower, upper = torch.zeros_like(centre), torch.ones_like(centre)
    owner = torch.tensor([3, 1, 2, 0, 2])
    slope = torch.randn(5, 2, 3)
    reach = ball.reach(slope, lower[owner], upper[owner], owner)
    for row, image in enumerate(owner.tolist()):
        step = torch.randn(2000, 6, dtype=torch.float64) * 10 ** -torch.rand(2000, 1, dtype=torch.float64)
        length = torch.linalg.vector_norm(step, 1 if norm == "l1" else 2, dim=1, keepdim=True)
        step = step * (eps[image] / length).clamp(max=1)
        points = (centre[image].double().flatten() + step).clamp(0, 1)  # clamping shortens the step
        found = (points - centre[image].double().flatten()) @ slope[row].double().flatten()
        assert found.max() <= reach[row]
