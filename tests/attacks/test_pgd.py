import pytest
import torch
from torch import Tensor

from prood.attacks import PGD, Search
from prood.attacks.pgd import scaled

NONE = {"decontrasted": 0, "uniform": 0, "gaussian": 0}


@pytest.fixture
def trace(scored):
    """The points that an attack on one image sees after the first look: one row for each pass."""

    def run(attack: PGD, function, x: Tensor, eps: float, **options) -> Tensor:
        seen = []

        def watched(points: Tensor) -> Tensor:
            seen.append(points.detach().clone())
            return function(points)

        attack(scored(watched), x, eps, **options)
        return torch.cat(seen[1:])

    return run


def starts(attack: PGD, scored, x: Tensor, eps: float) -> Tensor:
    search = Search(scored(lambda u: u.double().sum((1, 2, 3))), x, eps, goal=torch.full((len(x),), torch.inf))
    search.member = "pgd"
    return attack._start(search, *search.owners(attack.starts)).view(len(x), attack.starts, *x.shape[1:])


def test_the_defaults_are_those_of_the_paper():
    attack = PGD()
    assert (attack.steps, attack.momentum, attack.step, attack.sigma) == (200, 0.9, 0.1, 1e-4)
    assert (attack.decontrasted, attack.uniform, attack.gaussian, attack.blocks) == (1, 3, 3, 0)


def test_the_kinds_of_starts(scored, edgy):
    x, eps = edgy(6, (3, 16, 16)), 0.1
    points = starts(PGD(decontrasted=1, uniform=2, gaussian=2, blocks=2), scored, x, eps)
    low, high = (x - eps).clamp_min(0), (x + eps).clamp_max(1)
    assert torch.allclose(points[:, 0], torch.full_like(x, 0.5).clamp(low, high), atol=1e-7)  # nearest to grey
    for k in (1, 2):
        place = ((points[:, k] - low) / (high - low)).double()
        assert abs(place.mean() - 0.5) < 0.02
        assert abs(place.var() - 1 / 12) < 0.005
    inner = (x > 1e-3) & (x < 1 - 1e-3)
    for k in (3, 4):
        noise = (points[:, k] - x)[inner].double() / 1e-4
        assert abs(noise.mean()) < 0.08
        assert abs(noise.std() - 1) < 0.05
    for k in (5, 6):
        assert ((points[:, k] >= low - 1e-7) & (points[:, k] <= high + 1e-7)).all()
    flat = points.flatten(2)
    assert all(not torch.equal(flat[:, i], flat[:, j]) for i in range(7) for j in range(i))


def test_no_starts_is_no_search(scored, edgy):
    attack = PGD(**NONE)
    outcome = attack(scored(lambda u: u.double().sum((1, 2, 3))), edgy(2, (1, 3, 3)), 0.1)
    assert (outcome.forward, attack.passes) == (2, 1)


def test_steps_are_scaled_for_each_image_whatever_the_size_of_its_gradient(trace):
    x = torch.full((1, 1, 2, 2), 0.5)
    w = torch.tensor([[1.0, -2.0], [3.0, 2.0]])
    for factor in (1e-30, 1.0, 1e30):
        attack = PGD(**NONE | {"decontrasted": 1}, steps=1, step=0.01)
        first, second = trace(attack, lambda u, f=factor: (u.double() * w * f).sum((1, 2, 3)), x, 0.3)
        assert torch.allclose(second - first, 0.01 * w / 2, atol=1e-6)


def test_a_step_grows_after_a_rise_and_is_undone_and_halved_after_none(trace):
    x = torch.full((1, 1, 1, 1), 0.5)
    up = PGD(**NONE | {"decontrasted": 1}, steps=4, step=0.01)
    path = trace(up, lambda u: u.double().sum((1, 2, 3)), x, 0.3).flatten()
    assert torch.allclose(path.diff(), 0.01 * 1.1 ** torch.arange(4.0), atol=1e-6)
    # A top at 0.505: the first step leads as far beyond, where the score is no higher, and each is half as long.
    path = trace(up, lambda u: -(u.double() - 0.5049).abs().sum((1, 2, 3)), x, 0.3).flatten()
    assert torch.allclose(path[:3], torch.tensor([0.5, 0.51, 0.505]), atol=1e-6)
    assert torch.allclose(path[3:] - path[2], torch.tensor([-0.0055, -0.00275]), atol=1e-6)


def test_a_score_that_stays_the_same_is_no_rise(trace):
    x = torch.full((1, 1, 1, 1), 0.5)
    attack = PGD(**NONE | {"decontrasted": 1}, steps=3, step=0.01)
    path = trace(attack, lambda u: (u - u.detach()).double().sum((1, 2, 3)), x, 0.3).flatten()
    assert torch.allclose(path - 0.5, torch.tensor([0.0, 0.01, 0.005, 0.0025]), atol=1e-6)


def test_momentum_carries_on(trace):
    """Two pixels; after the first step the slope turns from one to the other."""
    x = torch.full((1, 1, 1, 2), 0.5)

    def turning(u: Tensor) -> Tensor:
        a, b = u.double().flatten(1).unbind(1)
        return torch.where(a < 0.505, a, 0.505 + b)

    attack = PGD(**NONE | {"decontrasted": 1}, steps=2, step=0.01)
    points = trace(attack, turning, x, 0.3).view(-1, 2)
    assert torch.allclose(points[1], torch.tensor([0.52, 0.5]), atol=1e-6)  # mean|m| = 1: all of it in one pixel
    # m = 0.9·(2, 0) + (0, 2), scaled to a mean of 1, and a step of 0.011
    assert torch.allclose(points[2] - points[1], 0.011 * torch.tensor([1.8, 2.0]) / 1.9, atol=1e-6)
    plain = trace(PGD(**NONE | {"decontrasted": 1}, steps=2, step=0.01, momentum=0.0), turning, x, 0.3).view(-1, 2)
    assert torch.allclose(plain[2] - plain[1], 0.011 * torch.tensor([0.0, 2.0]), atol=1e-6)


def test_pixels_at_the_edge_of_the_ball_take_nothing_from_the_others(trace):
    x = torch.tensor([1.0, 0.5, 0.5, 0.5]).view(1, 1, 2, 2)
    w = torch.tensor([1000.0, 1.0, -1.0, 1.0]).view(1, 2, 2)
    attack = PGD(**NONE | {"gaussian": 1}, sigma=0.0, steps=1, step=0.01)
    first, second = trace(attack, lambda u: (u.double() * w).sum((1, 2, 3)), x, 0.1)
    assert torch.allclose((second - first).flatten(), torch.tensor([0.0, 1.0, -1.0, 1.0]) * 0.04 / 3, atol=1e-6)


def test_after_a_step_across_a_ridge_comes_one_along_it(trace):
    def ridge(u: Tensor) -> Tensor:
        a, b = u.double().flatten(1).unbind(1)
        return a + b - 2 * (a - b).abs()

    x = torch.tensor([0.5, 0.499]).view(1, 1, 1, 2)
    attack = PGD(**NONE | {"gaussian": 1}, sigma=0.0, steps=2, step=0.01)
    start, across, along = trace(attack, ridge, x, 0.3).view(-1, 2)
    here, beyond = torch.tensor([-0.5, 1.5]), torch.tensor([1.5, -0.5])  # both gradients, scaled
    assert torch.allclose(across - start, 0.01 * here, atol=1e-6)
    assert torch.allclose(along - start, 0.005 * (here + 0.9 * beyond) / 0.95, atol=1e-6)


def test_a_row_at_a_maximum_goes_on_elsewhere(scored):
    """Two hills: from the image only the lower one is uphill."""

    def hills(u: Tensor) -> Tensor:
        move = (u.double() - 0.5).mean((1, 2, 3))
        return torch.maximum(move, -3 * move - 0.15)

    x = torch.full((2, 1, 4, 4), 0.5)
    attack = PGD(**NONE | {"gaussian": 1}, steps=60)
    assert torch.allclose(attack(scored(hills), x, 0.1).scores, torch.tensor(0.15).double(), atol=1e-6)


def test_a_row_goes_on_with_a_step_no_longer_than_the_ball(trace):
    x, w, eps = torch.full((1, 1, 1, 2), 0.5), torch.tensor([1.0, 3.0]), 0.01
    attack = PGD(**NONE | {"gaussian": 1}, steps=60)
    path = trace(attack, lambda u: (u.double() * w).sum((1, 2, 3)), x, eps).view(-1, 2)
    high = path.amax(0)
    checked = 0
    for top, elsewhere, after in zip(path, path[1:], path[2:], strict=False):
        if torch.equal(top, high) and (elsewhere < high).all():
            assert torch.allclose(after, (elsewhere + 2 * eps * w / 2).minimum(high), atol=1e-7)
            checked += (elsewhere[0] < high[0] - eps).item()
    assert checked > 2


def test_a_row_whose_step_has_become_tiny_goes_on_elsewhere(scored):
    """A sharp top inside the ball holds a row that ascends, and there is a higher one at a corner."""

    def tops(u: Tensor) -> Tensor:
        move = (u.double() - 0.5).mean((1, 2, 3))
        return torch.maximum(0.01 - (move - 0.0217).abs(), -move - 0.07)

    x = torch.full((2, 1, 4, 4), 0.52)
    attack = PGD(**NONE | {"gaussian": 1}, steps=120)
    outcome = attack(scored(tops), x, 0.12)
    assert torch.allclose(outcome.scores, torch.tensor(0.03).double(), atol=1e-6)


@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-3, 1.0, 1e37])
def test_scaled_rows_have_a_mean_of_one(size):
    direction = torch.tensor([[1.0, -2.0, 0.0, 5.0], [-1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]) * size
    rows = scaled(direction.view(3, 1, 2, 2)).flatten(1)
    assert torch.allclose(rows.abs().mean(1), torch.tensor([1.0, 1.0, 0.0]))
    assert torch.equal(rows.sign(), direction.sign())
