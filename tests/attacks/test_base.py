"""What holds for every attack, whatever it searches: each test runs over all of them, with small budgets."""

import math

import pytest
import torch
from torch import Tensor, nn

from prood.attacks import NEVER, PGD
from prood.bounds import NegativeLinear
from prood.errors import BadValue, Diverged, ProodError
from prood.models import Discriminator, InLogit

SHAPE = (2, 5, 4)


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.0, 1e-9, 0.01, 8 / 255, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_points_lie_in_the_ball_and_in_the_cube(attack, eps, dtype, wavy, edgy):
    x = edgy(4, SHAPE, dtype=dtype)
    outcome = attack(wavy(SHAPE), x, eps)
    assert outcome.images.dtype == dtype
    assert ((outcome.images.double() - x.double()).abs() <= eps).all()
    assert ((outcome.images >= 0) & (outcome.images <= 1)).all()
    assert (outcome.scores > outcome.clean).all() == (eps > 0)


def test_every_point_that_is_scored_lies_in_the_ball(attack, wavy, edgy, scored):
    x, inner = edgy(1, SHAPE), wavy(SHAPE)
    seen = []

    def watched(points: Tensor) -> Tensor:
        seen.append(points.detach().double())
        return inner(points)

    attack(scored(watched), x, 0.1)
    points = torch.cat(seen)
    assert ((points - x.double()).abs() <= 0.1).all()
    assert ((points >= 0) & (points <= 1)).all()


def test_scores_are_those_of_the_points_and_the_best_that_were_seen(attack, edgy, wavy, scored):
    x, inner = edgy(1, SHAPE), wavy(SHAPE)
    seen, later = [], []

    def watched(points: Tensor) -> Tensor:
        seen.append(inner(points))
        return seen[-1]

    for k in range(6):
        seen.clear()
        outcome = attack(scored(watched), x, 0.2, seed=k)
        scores = torch.cat(seen).detach()
        assert outcome.scores.item() == scores.max()
        later.append((scores[-1] < outcome.scores).item())
        assert torch.equal(inner(outcome.images), outcome.scores)
        assert outcome.clean.item() == scores[0] == inner(x)
    assert any(later)  # there were better points than the last one


def test_an_image_that_cannot_be_improved_stays_as_it_is(attack, scored, edgy):
    x = edgy(3, SHAPE)
    outcome = attack(scored(lambda u: -((u.double() - x[:1].double()) ** 2).sum((1, 2, 3))), x[:1], 0.1)
    assert torch.equal(outcome.images, x[:1])
    assert outcome.found_by == ["clean"]
    assert torch.equal(outcome.scores, outcome.clean)


def test_a_seed_repeats_exactly_and_another_one_differs(attack, wavy, edgy):
    x, score = edgy(3, SHAPE), wavy(SHAPE)
    before = torch.get_rng_state()
    first, again, other = (attack(score, x, 0.3, seed=seed) for seed in (4, 4, 5))
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.scores, again.scores)
    assert not torch.equal(first.images, other.images)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_image_does_not_see_the_rest_of_its_batch(attack, wavy, edgy):
    x, score = edgy(6, SHAPE, dtype=torch.float64), wavy(SHAPE)
    together = attack(score, x, 0.2)
    for k in range(6):
        alone = attack(score, x[k : k + 1], 0.2, numbers=[k])
        assert torch.allclose(alone.images[0], together.images[k], rtol=0, atol=1e-12)
        assert torch.allclose(alone.scores[0], together.scores[k], rtol=0, atol=1e-12)
    order = torch.tensor([3, 0, 5])
    assert torch.allclose(attack(score, x[order], 0.2, numbers=order).scores, together.scores[order], atol=1e-12)


def test_images_that_reach_their_goal_leave_and_change_nothing_for_the_others(attack, wavy, edgy):
    x, score, partly = edgy(6, SHAPE), wavy(SHAPE), wavy(SHAPE)
    whole = attack(score, x, 0.3, goal=NEVER)
    assert not whole.settled.any()
    goal = torch.where(torch.arange(6) % 2 == 0, whole.clean + 0.3 * (whole.scores - whole.clean), torch.inf)
    outcome = attack(partly, x, 0.3, goal=goal)
    assert torch.equal(outcome.settled, torch.arange(6) % 2 == 0)
    assert (outcome.scores[::2] >= goal[::2]).all()
    assert torch.equal(outcome.images[1::2], whole.images[1::2])
    assert torch.equal(outcome.scores[1::2], whole.scores[1::2])
    assert outcome.forward == partly.forward < 0.95 * score.forward
    # A goal that is reached exactly is reached, and no row of a settled image is scored again.
    assert attack(wavy(SHAPE), x, 0.3, goal=whole.scores).settled.all()
    late = max(k for k, calls in enumerate(partly.calls) if calls)
    assert partly.calls[late] <= score.calls[-1] // 2


def test_only_the_first_look_is_paid_where_nothing_is_left_to_find(attack, wavy, edgy):
    score = wavy(SHAPE)
    outcome = attack(score, edgy(5, SHAPE), 0.3, goal=-math.inf)
    assert outcome.settled.all()
    assert (outcome.forward, outcome.backward) == (score.forward, score.backward) == (5, 0)
    assert 0 not in score.calls


def test_an_attack_is_not_even_asked_where_nothing_is_open(wavy, edgy):
    class Unasked(PGD):
        def search(self, search):
            raise AssertionError

    assert Unasked()(wavy(SHAPE), edgy(2, SHAPE), 0.3, goal=-math.inf).settled.all()


def test_passes_are_counted(attack, wavy, edgy):
    score = wavy(SHAPE)
    outcome = attack(score, edgy(3, SHAPE), 0.3, goal=NEVER)
    assert (outcome.forward, outcome.backward) == (score.forward, score.backward)
    assert outcome.forward + outcome.backward == 3 * attack.passes == 3 * (1 + attack.cost)


def test_no_call_has_more_rows_than_allowed_and_results_are_the_same(attack, wavy, edgy):
    x, few, many = edgy(5, SHAPE, dtype=torch.float64), wavy(SHAPE), wavy(SHAPE)
    small, large = attack(few, x, 0.3, rows=3), attack(many, x, 0.3)
    assert max(few.calls) == 3
    assert max(many.calls) >= 5
    assert torch.allclose(small.scores, large.scores, rtol=0, atol=1e-12)


class Mark:
    """Hangs on the graph of one pass, and lives as long as that."""

    alive = 0

    def __init__(self) -> None:
        Mark.alive += 1

    def __call__(self, gradient: Tensor) -> None:
        pass

    def __del__(self) -> None:
        Mark.alive -= 1


def test_no_graph_outlives_its_pass(attack, scored, edgy, wavy):
    inner, alive = wavy(SHAPE).function, []

    def marked(x: Tensor) -> Tensor:
        alive.append(Mark.alive)
        scores = inner(x)
        if scores.requires_grad:
            scores.register_hook(Mark())
        return scores

    outcome = attack(scored(marked), edgy(2, SHAPE), 0.3)
    assert len(alive) > 8
    assert set(alive) == {0}
    assert not outcome.scores.requires_grad
    assert not outcome.images.requires_grad


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 0.0])
def test_gradients_that_are_no_numbers_neither_end_nor_poison_a_search(attack, bad, scored, edgy):
    """Half of the pixels have such a gradient, the others lead to the maximum."""
    mask = (torch.arange(20) % 2 == 0).view(1, 5, 4)

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return torch.where(mask, gradient, bad)

    def function(x: Tensor) -> Tensor:
        return torch.where(mask, Broken.apply(x), 0).double().sum((1, 2, 3))

    x = edgy(3, (1, 5, 4))
    outcome = attack(scored(function), x, 0.1)
    gain = torch.where(mask, (x + 0.1).clamp_max(1) - x, 0).sum((1, 2, 3))
    assert outcome.images.isfinite().all()
    assert (outcome.scores - outcome.clean > 0.9 * gain).all() or not outcome.backward  # Square asks for none


def test_a_score_that_is_no_number_is_an_error(attack, scored, edgy):
    calls = []

    def late(x: Tensor) -> Tensor:
        calls.append(1)
        return x.double().sum((1, 2, 3)) * (math.nan if len(calls) > 3 else 1)

    with pytest.raises(Diverged):
        attack(scored(late), edgy(2, SHAPE), 0.1)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.rand(2, 3, 4), "shape"),
        (torch.rand(0, 1, 4, 4), "non-empty"),
        (torch.rand(2, 1, 0, 4), "non-empty"),
        (torch.ones(1, 1, 2, 2, dtype=torch.uint8), "floating-point"),
        (torch.rand(2, 1, 4, 4) + 1.5, r"\[0, 1\]"),
        (torch.full((1, 1, 2, 2), -1e-6), r"\[0, 1\]"),
        (torch.full((1, 1, 2, 2), math.nan), r"\[0, 1\]"),
    ],
)
def test_images_that_are_none_are_refused(images, message, wavy, certified):
    for score in (wavy((1, 4, 4)), certified):  # the bound, which comes first, is not asked about them either
        with pytest.raises(BadValue, match=message):
            PGD()(score, images, 0.1)


@pytest.mark.parametrize("eps", [-0.1, math.nan, math.inf, -math.inf])
def test_a_radius_that_is_none_is_refused(eps, wavy, edgy):
    with pytest.raises(BadValue):
        PGD()(wavy(SHAPE), edgy(1, SHAPE), eps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"goal": math.nan}, "goal is not a number"),
        ({"goal": torch.zeros(3)}, "one goal"),
        ({"goal": torch.zeros(1)}, "one goal"),
        ({"numbers": [0]}, "one number"),
    ],
)
def test_goals_and_numbers_are_one_for_each_image(options, message, wavy, edgy):
    with pytest.raises(ProodError, match=message):
        PGD()(wavy(SHAPE), edgy(2, SHAPE), 0.1, **options)


@pytest.fixture
def certified() -> InLogit:
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(40, 6), nn.ReLU(), NegativeLinear(6)]
    return InLogit(Discriminator(nn.Sequential(*layers)).eval())


def test_the_default_goal_is_the_certified_bound(attack, certified, edgy):
    x = edgy(40, SHAPE)
    with torch.no_grad():
        bound = certified.upper_bound(x, 0.05)
    outcome = attack(certified, x, 0.05, tolerance=0.02)
    assert torch.equal(outcome.settled, outcome.scores >= bound - 0.02)
    assert 0 < outcome.settled.sum() < 40
    assert (outcome.scores <= bound + 1e-5).all()
    never = attack(certified, x, 0.05, goal=NEVER)
    assert (never.scores <= bound + 1e-5).all()
    assert outcome.forward < never.forward
    assert (never.scores - outcome.scores)[outcome.settled].max() <= 0.02 + 1e-5


def test_parameters_get_no_gradients(attack, certified, edgy):
    attack(certified, edgy(2, SHAPE), 0.05)
    assert all(parameter.grad is None for parameter in certified.model.parameters())
