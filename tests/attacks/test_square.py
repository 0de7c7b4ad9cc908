import pytest
import torch
from torch import Tensor

from prood.attacks import NEVER, Square, square
from prood.attacks.square import share, side_of_square

EPS = 0.1


@pytest.fixture
def trace(scored):
    def run(attack: Square, function, x: Tensor) -> Tensor:
        seen = []

        def watched(points: Tensor) -> Tensor:
            seen.append(points.clone())
            return function(points)

        attack(scored(watched), x, EPS)
        return torch.cat(seen[1:])

    return run


def test_the_defaults_are_those_of_the_paper():
    assert Square().queries == 5000
    assert Square().fraction == 0.8


def test_the_schedule_halves_the_square_at_the_parts_of_the_paper():
    """At 10, 50, 200, 1000, 2000, 4000, 6000 and 8000 of 10000 queries."""
    halved = [query for query in range(1, 10_000) if share(query / 10_000) < share((query - 1) / 10_000)]
    assert halved == [11, 51, 201, 1001, 2001, 4001, 6001, 8001]
    assert share(0) == 1
    assert share(1) == 1 / 256


def test_the_side_of_the_square():
    assert side_of_square(0.8, 28, 28) == 25  # √(0.8·784) = 25.04
    assert side_of_square(0.8 / 256, 28, 28) == 2
    assert side_of_square(0.8 / 256, 6, 6) == 1  # never none
    assert side_of_square(0.8, 4, 100) == 4  # never more than fits
    assert side_of_square(0.8, 100, 4) == 4


def test_it_starts_from_vertical_stripes(trace):
    first = trace(Square(queries=1), lambda u: u.double().sum((1, 2, 3)), torch.full((1, 3, 9, 12), 0.5))[0]
    assert torch.equal(first, first[:, :1].expand_as(first))
    assert torch.allclose((first - 0.5).abs(), torch.tensor(EPS), atol=1e-6)
    assert {len(stripes.unique()) for stripes in first[:, 0]} == {2}
    assert not torch.equal(first[0], first[1])


@pytest.fixture
def proposals(trace):
    """(first point, proposals) where every score is lower than the one before, so that the first point stays."""

    def run(attack: Square, x: Tensor) -> tuple[Tensor, Tensor]:
        falling = iter(range(100_000))
        points = trace(attack, lambda u: torch.tensor([-1.0 * next(falling)]), x)
        return points[0], points[1:]

    return run


def extent(changed: Tensor) -> int:
    """The side of the smallest square around what has changed, (H, W)."""
    rows, columns = changed.nonzero().unbind(1)
    return int(max(rows.max() - rows.min(), columns.max() - columns.min()) + 1)


def test_a_proposal_sets_one_square_to_the_edge_of_the_ball(proposals):
    first, points = proposals(Square(queries=200), torch.full((1, 3, 30, 32), 0.5))
    places, signs = set(), set()
    for query, point in enumerate(points, 1):
        side = side_of_square(0.8 * share(query / 200), 30, 32)
        assert side > 1
        changed = (point != first).any(0)
        assert 0 < extent(changed) <= side
        row, column = (int(where.min()) for where in changed.nonzero().unbind(1))
        assert torch.allclose((point - 0.5).abs(), torch.tensor(EPS), atol=1e-6)
        places.add(row), places.add(-column)
        signs.add(tuple((point[:, row, column] > 0.5).tolist()))
    assert {0, 28, -30} <= places  # squares of side 2 can be anywhere
    assert len(signs) == 8


def test_no_proposal_is_the_point_itself(proposals):
    for shape in ((1, 6, 6), (3, 5, 4), (1, 20, 20)):
        first, points = proposals(Square(queries=150), torch.full((1, *shape), 0.5))
        assert (points != first).flatten(1).any(1).all()


@pytest.mark.slow
def test_single_pixels_alternate_with_steps_of_all_pixels_of_any_size(proposals):
    first, points = proposals(Square(queries=1000), torch.full((1, 1, 6, 6), 0.5))
    points = points[500:]  # the squares are single pixels now
    changed = (points != first).flatten(1).sum(1)
    assert 0.4 < (changed == 1).double().mean() < 0.6
    step = (points - first).abs().flatten(1).amax(1)[changed > 1]
    sizes = -(step / (2 * EPS)).log2()
    assert abs((sizes < 6).double().mean() - 0.5) < 0.1
    assert sizes.max() > 11
    assert sizes.min() < 1


def test_a_step_is_taken_unless_the_score_falls(trace):
    """Each proposal differs by one square from the point that the rule says is the current one."""

    weights = torch.randn(30, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def rough(u: Tensor) -> Tensor:
        return (u.double() * weights).sum((1, 2, 3)).mul(0.7).floor()  # many ties

    points = trace(Square(queries=80), rough, torch.full((1, 1, 30, 30), 0.5))
    values, current, taken = rough(points), 0, []
    for query in range(1, 80):
        side = side_of_square(0.8 * share(query / 80), 30, 30)
        assert 0 < extent((points[query] != points[current]).any(0)) <= side
        taken.append((values[query] - values[current]).item())
        current = query if values[query] >= values[current] else current
    assert min(taken) < 0 < max(taken)
    assert taken.count(0.0) > 5


def test_a_maximum_inside_the_ball_is_found(scored):
    score = scored(lambda u: -(u.double() - 0.5).square().sum((1, 2, 3)))
    x = torch.full((2, 1, 1, 3), 0.54)
    assert (Square(queries=1000)(score, x, EPS, goal=-1e-5).scores >= -1e-5).all()


@pytest.mark.slow
def test_squares_that_are_drawn_at_once_are_those_that_are_drawn_one_by_one(scored, monkeypatch):
    """Images settle meanwhile, and squares of one pixel take steps inside the ball."""
    x = 0.4 + 0.2 * torch.rand(5, 2, 6, 7, generator=torch.Generator().manual_seed(0))
    attack, found = Square(queries=200), []

    def bowl(u: Tensor) -> Tensor:
        return -(u.double() - 0.52).square().sum((1, 2, 3))

    goal = attack(scored(bowl), x, EPS, goal=NEVER).scores.median().item()
    for ahead in (1, 7, 64, 1000):
        monkeypatch.setattr(square, "AHEAD", ahead)
        sides = [(side, query) for side, queries in attack._stretches(6, 7) for query in queries]
        assert sides == [(side_of_square(0.8 * share(query / 200), 6, 7), query) for query in range(1, 200)]
        found.append(attack(scored(bowl), x, EPS, goal=goal))
    first, *others = found
    assert 0 < first.settled.sum() < 5
    assert 1 in {side for side, _ in sides}
    for other in others:
        assert torch.equal(other.images, first.images)
        assert torch.equal(other.scores, first.scores)
        assert other.forward == first.forward
