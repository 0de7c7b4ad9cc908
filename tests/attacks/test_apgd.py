import pytest
import torch
from torch import Tensor

from prood.attacks import APGD, Search
from prood.attacks.apgd import checkpoints


@pytest.fixture
def trace(scored):
    """The points of one restart on one image, from its start on."""

    def run(attack: APGD, function, x: Tensor, eps: float) -> Tensor:
        seen = []

        def watched(points: Tensor) -> Tensor:
            seen.append(points.detach().clone())
            return function(points)

        attack(scored(watched), x, eps)
        return torch.cat(seen[1:])

    return run


def test_the_defaults_are_those_of_the_paper():
    assert (APGD().iterations, APGD().restarts, APGD().refine) == (500, 5, 0)


def test_checkpoints_are_those_of_the_paper():
    assert sorted(checkpoints(500)) == [110, 205, 285, 350, 400, 435, 465, 495]
    assert sorted(checkpoints(100)) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert sorted(checkpoints(1000)) == [220, 410, 570, 700, 800, 870, 930, 990]
    assert sorted(checkpoints(7)) == [2, 3, 4, 5, 6, 7]  # rounded up


def test_the_first_steps_are_those_of_the_formula(trace):
    """A whole step of 2ε by the sign of the gradient, then 0.75 of one and 0.25 of the last step."""
    x = torch.full((1, 1, 1, 2), 0.5)
    middle = torch.tensor([0.47, 0.52])
    path = trace(APGD(iterations=20, restarts=1), lambda u: -(u - middle).double().square().sum((1, 2, 3)), x, 0.05)
    path = path.view(-1, 2)
    for k in range(4):
        towards = (path[k] + 0.1 * (middle - path[k]).sign()).clamp(0.45, 0.55)
        ahead = path[k] + 0.75 * (towards - path[k]) + 0.25 * (path[k] - path[k - 1]) if k else towards
        assert torch.allclose(path[k + 1], ahead.clamp(0.45, 0.55), atol=1e-6)


def test_a_row_at_a_maximum_starts_anew_with_a_whole_step(trace):
    """Two hills with a maximum at each end of the ball: each climb ends there, and a new one begins elsewhere."""
    x = torch.full((1, 1, 1, 1), 0.5)

    def hills(u: Tensor) -> Tensor:
        return torch.maximum(u.double() - 0.5, 2 * (0.47 - u.double())).sum((1, 2, 3))

    path = trace(APGD(iterations=150, restarts=1), hills, x, 0.1).flatten()
    top = ((path - 0.5).abs() - 0.1).abs() < 1e-6
    climbs, lengths, lower = 0, [], []
    for k in top.nonzero().flatten().tolist():
        if k + 2 >= len(path) or {k, k + 1} & checkpoints(150):
            continue
        if path[k] > 0.5:  # the lower one: not back to the other, which the row has left behind
            lower.append((path[k + 1] < 0.4 + 1e-6).item())
        if not top[k + 1]:
            edge = 0.6 if path[k + 1] > 1.44 / 3 else 0.4
            lengths.append((path[k + 2] - path[k + 1] - 0.75 * (edge - path[k + 1])).abs().item())
            climbs += 1
    assert climbs > 20
    assert max(lengths) < 1e-6
    assert 0 < sum(lower) < 0.5 * len(lower)


def test_a_row_that_seldom_rises_goes_back_to_its_best_point_and_halves_its_step(trace):
    """Around a steep top every other step overshoots; at a checkpoint the search must come back to its best point."""
    x = torch.full((1, 1, 1, 1), 0.5)

    def top(u: Tensor) -> Tensor:
        return -(u.double() - 0.5117).abs().sum((1, 2, 3))

    eps, n = 0.05, 100
    path = trace(APGD(iterations=n, restarts=1), top, x, eps).flatten().double()
    step, last = 2 * eps, 0
    for check in sorted(checkpoints(n)):
        best = path[: check + 1][(path[: check + 1] - 0.5117).abs().argmin()]
        rises = (top(path[last + 1 : check + 1].view(-1, 1, 1, 1)) > top(path[last:check].view(-1, 1, 1, 1))).sum()
        if rises < 0.75 * (check - last):
            step /= 2
            towards = (best + step * (0.5117 - best).sign()).clamp(0.45, 0.55)
            assert torch.allclose(path[check + 1], best + 0.75 * (towards - best), atol=1e-6)
        last = check
    assert step <= 2 * eps / 2**7
    assert (path[-1] - 0.5117).abs() < 2e-3


def test_starts_are_uniform_or_near_the_best_point_so_far(scored, edgy):
    x, eps = edgy(3, (2, 9, 9)), 0.1
    search = Search(scored(lambda u: u.double().sum((1, 2, 3))), x, eps, goal=torch.full((3,), torch.inf))
    search.member = "apgd"
    search.values(search.high, torch.arange(3))
    attack = APGD(restarts=2, refine=3)
    points = attack._start(search, *search.owners(5)).view(3, 5, 2, 9, 9)
    place = ((points - search.low[:, None]) / (search.high - search.low)[:, None]).double()
    for k in (0, 1):
        assert abs(place[:, k].mean() - 0.5) < 0.05
        assert abs(place[:, k].var() - 1 / 12) < 0.01
    assert torch.equal(points[:, 2], search.high)
    distance = (points - search.high[:, None]).abs().amax((2, 3, 4))
    assert (distance[:, 2] < distance[:, 3]).all()
    assert (distance[:, 3] < distance[:, 4]).all()
    assert (distance[:, 4] < 0.7 * distance[:, 0]).all()


def test_refining_never_loses_what_was_found(scored, edgy, wavy):
    x, score = edgy(3, (1, 5, 5)), wavy((1, 5, 5))
    goal = torch.full((3,), torch.inf)
    search = Search(score, x, 0.3, goal=goal)
    search.member = "apgd"
    with torch.no_grad():
        APGD(iterations=3, restarts=1).search(search)
        before = search.value.clone()
        APGD(iterations=20, restarts=0, refine=1).search(search)
    assert (search.value > before).all()


def test_a_row_on_a_plateau_goes_back_to_its_slope_with_half_the_step(trace):
    """A narrow hill beside a wide plateau: the first step lands on the plateau, and the search must come back."""
    x = torch.full((1, 1, 1, 1), 0.5)

    def hill(u: Tensor) -> Tensor:
        return (0.26 - (u.double() - 0.5).abs()).relu().sum((1, 2, 3)) ** 2

    path = trace(APGD(iterations=40, restarts=1), hill, x, 0.4).flatten()
    start, first, second = path[:3]
    assert abs(start - 0.5) < 0.26 < abs(first - 0.5)  # the draw of this seed: on the hill, and then off it
    assert torch.allclose(second, start + 0.75 * (first - start).sign() * 0.4, atol=1e-6)
    assert (path - 0.5).abs().min() < 0.02
