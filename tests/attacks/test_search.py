import math

import pytest
import torch

from prood.attacks import Search, Square
from prood.attacks.search import ball
from prood.errors import Diverged

SHAPE = (1, 3, 3)


@pytest.fixture
def make(scored):
    def search(x, eps=0.1, goal=math.inf, **options):
        score = scored(lambda u: u.double().sum((1, 2, 3)))
        return Search(score, x, eps, goal=torch.full((len(x),), goal, dtype=torch.float64), **options)

    return search


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.0, 1e-12, 0.01, 0.1, 8 / 255, 0.3, 1.0, 7.0])
def test_the_corners_of_the_ball_are_inside_and_nothing_is_lost(dtype, eps, edgy):
    x = torch.cat([edgy(40, (1, 8, 8), dtype=dtype), torch.arange(256, dtype=dtype).view(4, 1, 8, 8) / 255])
    low, high = ball(x, eps)
    assert (low >= 0).all()
    assert (high <= 1).all()
    assert (low <= x).all()
    assert (high >= x).all()
    assert (x.double() - low.double() <= eps).all()
    assert (high.double() - x.double() <= eps).all()
    rounding = torch.finfo(dtype).eps
    assert (low.double() - (x.double() - eps).clamp_min(0) <= rounding).all()
    assert ((x.double() + eps).clamp_max(1) - high.double() <= rounding).all()


def test_the_first_look_is_at_the_images_themselves(make, edgy):
    x = edgy(3, SHAPE)
    search = make(x)
    assert torch.equal(search.clean, x.double().sum((1, 2, 3)))
    assert torch.equal(search.value, search.clean)
    assert torch.equal(search.best, x)
    assert search.found_by == ["clean"] * 3
    assert (search.forward, search.backward) == (3, 0)


def test_the_best_row_of_each_image_is_kept_and_its_finder(make):
    x = torch.full((3, *SHAPE), 0.5)
    search = make(x)
    owner = torch.tensor([0, 1, 1, 1, 0])
    shift = torch.tensor([-0.1, 0.02, 0.05, 0.03, 0.01]).view(-1, 1, 1, 1)
    search.member = "first"
    search.values(x[owner] + shift, owner)
    assert torch.equal(search.best, torch.stack([x[0] + 0.01, x[1] + 0.05, x[2]]))
    search.member = "second"
    search.values(x[owner] + shift, owner)  # no better than before: nothing changes hands
    assert search.found_by == ["first", "first", "clean"]
    search.values_and_gradients(x[2:] + 0.1, torch.tensor([2]))
    assert search.found_by == ["first", "first", "second"]
    assert (search.forward, search.backward) == (3 + 5 + 5 + 1, 1)


def test_of_rows_that_tie_the_first_is_kept(scored):
    x = torch.full((1, *SHAPE), 0.5)
    search = Search(scored(lambda u: (u != 0.5).any(-1).any(-1).any(-1)), x, 0.1, goal=torch.tensor([math.inf]))
    points = x + torch.tensor([0.0, 0.03, 0.02, 0.01]).view(-1, 1, 1, 1)
    search.values(points, torch.zeros(4, dtype=torch.int64))
    assert torch.equal(search.best, points[1:2])


def test_an_image_is_open_until_it_reaches_its_goal(make):
    x = torch.full((2, *SHAPE), 0.5)
    search = make(x, goal=4.6)
    assert search.open.tolist() == [True, True]
    search.values(x[1:] + 0.1, torch.tensor([1]))
    assert search.open.tolist() == [True, False]
    owner, restart = search.owners(3)
    assert owner.tolist() == [0, 0, 0]
    assert restart.tolist() == [0, 1, 2]


def test_keys_differ_by_seed_searcher_image_and_part(make):
    x = torch.full((4, *SHAPE), 0.5)
    everyone = torch.arange(4)
    found = []
    for seed in (0, 1):
        search = make(x, seed=seed)
        for member in ("pgd", "apgd"):
            search.member = member
            found += [search.keys(everyone, *parts) for parts in ((), (0,), (1,), (0, 1), (1, 0), (0, everyone + 2))]
    assert torch.cat(found).unique().numel() == 4 * 6 * 4
    renamed = make(x[:1], numbers=[2])
    renamed.member = "pgd"
    assert renamed.keys(torch.tensor([0])) == found[0][2]


def test_uphill_leaves_out_what_points_out_of_the_ball(make):
    x = torch.tensor([0.0, 0.5, 0.5, 0.5, 1.0]).view(1, 1, 1, 5)
    search = make(x)
    owner = torch.tensor([0])
    point = torch.stack([search.low[0, 0, 0, 0], *search.high[0, 0, 0, 1:3], x[0, 0, 0, 3], x[0, 0, 0, 4]])
    gradient = torch.tensor([-1.0, 2.0, -3.0, 4.0, 5.0])
    uphill = search.uphill(point.view(x.shape), gradient.view(x.shape), owner)
    assert uphill.flatten().tolist() == [0.0, 0.0, -3.0, 4.0, 0.0]


def test_elsewhere_is_in_a_corner_half_of_the_time_and_always_in_the_ball(make, edgy):
    x = edgy(1, (2, 4, 4))
    search = make(x)
    owner = torch.zeros(400, dtype=torch.int64)
    points = search.elsewhere(owner, search.keys(owner, torch.arange(400)))
    assert torch.equal(search.project(points, owner), points)
    near = (points - search.low).abs() < 1e-6
    corner = (near | ((points - search.high).abs() < 1e-6)).flatten(1).all(1)
    assert 0.4 < corner.double().mean() < 0.6
    ends = corner.nonzero().squeeze(1)
    assert near[ends].flatten(1).all(1).any()  # darker as a whole
    assert (~near[ends] | (search.low == search.high)).flatten(1).all(1).any()  # brighter as a whole
    assert (~corner).sum() == points[~corner].flatten(1).unique(dim=0).shape[0]


def test_gradients_are_those_of_each_row_alone(scored):
    x = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0))
    search = Search(scored(lambda u: (u.double() ** 3).sum((1, 2, 3))), x, 0.1, goal=torch.ones(5) * 9, rows=2)
    values, gradients = search.values_and_gradients(x, torch.arange(5))
    assert torch.allclose(gradients, 3 * x**2)
    assert torch.equal(values, (x.double() ** 3).sum((1, 2, 3)))
    assert search.score.calls == [2, 2, 1] * 2


def test_nothing_that_is_returned_has_a_graph(make, edgy):
    """Also where the caller has not turned gradients off: whoever keeps a value must not keep a network pass."""
    search = make(edgy(2, SHAPE))
    values, gradients = search.values_and_gradients(search.high, torch.arange(2))
    kept = (values, gradients, search.values(search.low, torch.arange(2)), search.best, search.value, search.clean)
    assert not any(tensor.requires_grad for tensor in kept)


def test_a_graph_that_does_not_reach_the_image_is_a_gradient_of_zero(scored):
    x, parameter = torch.rand(2, *SHAPE), torch.ones(1, requires_grad=True)
    search = Search(scored(lambda u: parameter * len(u) + u.detach().sum((1, 2, 3))), x, 0.1, goal=torch.ones(2) * 99)
    _, gradients = search.values_and_gradients(x, torch.arange(2))
    assert (gradients == 0).all()


def test_infinite_scores_are_scores(scored):
    x = torch.full((2, *SHAPE), 0.5)
    low = Search(scored(lambda u: torch.where(u.amax((1, 2, 3)) > 0.55, 0.0, -math.inf)), x, 0.1, goal=torch.ones(2))
    low.values(x[:1] + 0.1, torch.tensor([0]))
    assert low.value.tolist() == [0.0, -math.inf]
    with pytest.raises(Diverged):
        Search(scored(lambda u: torch.full((len(u),), math.nan)), x, 0.1, goal=torch.ones(2))


def test_a_score_that_is_no_number_is_noticed_in_time_and_never_the_best(scored):
    """As on a GPU, where it is not looked at every call."""
    x = torch.full((2, *SHAPE), 0.5)
    search = Search(
        scored(lambda u: torch.where(u.amax((1, 2, 3)) > 0.55, math.nan, 1.0)), x, 0.1, goal=torch.ones(2) * 9
    )
    search.patience = 3
    broken, fine = (x + step for step in (0.1, 0.0))
    search.values(broken, torch.arange(2))
    assert search.value.tolist() == [1.0, 1.0]
    assert torch.equal(search.best, x)
    search.values(fine, torch.arange(2))
    with pytest.raises(Diverged):
        search.values(fine, torch.arange(2))
    with pytest.raises(Diverged):  # nor is it forgotten
        search.check_numbers()


def test_an_attack_looks_once_more_at_its_end(scored, monkeypatch):
    never = property(lambda search: math.inf, lambda search, value: None)
    monkeypatch.setattr(Search, "patience", never, raising=False)
    score = scored(lambda u: torch.where(u.amax((1, 2, 3)) > 0.55, math.nan, 1.0))
    with pytest.raises(Diverged):
        Square(queries=5)(score, torch.full((2, *SHAPE), 0.5), 0.1, goal=9.0)


def test_scored_again_points_have_the_score_itself_and_none_below_the_image(scored):
    """The search may round otherwise, as on a GPU: here its scores are too high by different amounts."""
    x = torch.full((3, *SHAPE), 0.5)
    score = scored(lambda u: u.double().sum((1, 2, 3)))
    flaw = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)
    score.quick = lambda u: score(u) + flaw[: len(u)]
    search = Search(score, x, 0.1, goal=torch.full((3,), math.inf, dtype=torch.float64))
    search.member = "mine"
    search.values(x + torch.tensor([0.1, 0.05, -0.01]).view(3, 1, 1, 1), torch.arange(3))
    search.best[2], search._finder[2] = x[2] - 0.01, 1  # lower than the image: only rounding made it look better
    search.score_again()
    assert torch.equal(search.clean, score(x))
    assert torch.equal(search.value, score(search.best))
    assert torch.equal(search.best[2], x[2])
    assert search.found_by == ["mine", "mine", "clean"]
    assert torch.equal(search.best[:2], (x + torch.tensor([0.1, 0.05, 0]).view(3, 1, 1, 1))[:2])
