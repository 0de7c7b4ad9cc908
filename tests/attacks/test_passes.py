"""Scores and gradients of many points: a part at a time, and on a GPU as replayed graphs."""

import pytest
import torch
from torch import nn

from prood.attacks import APGD, PGD, Ensemble, Square
from prood.attacks.passes import SMALLEST, WARM_UP, Passes, size_for
from prood.bounds import strict
from prood.models import score_of

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="passes are captured on a GPU only")


def cubes(u):
    return (u.double() ** 3).sum((1, 2, 3))


def test_points_are_scored_a_part_at_a_time(scored):
    score, points = scored(cubes), torch.rand(7, 1, 3, 3)
    passes = Passes(score, rows=3)
    assert torch.equal(passes.values(points), cubes(points))
    assert score.calls == [3, 3, 1]
    values, gradients = passes.values_and_gradients(points)
    assert torch.equal(values, cubes(points))
    assert torch.allclose(gradients, 3 * points**2)
    assert score.backward == 7
    assert not values.requires_grad
    assert not gradients.requires_grad


def test_no_points_have_no_scores(scored):
    values, gradients = Passes(scored(cubes), rows=3).values_and_gradients(torch.rand(0, 1, 3, 3))
    assert values.shape == (0,)
    assert gradients.shape == (0, 1, 3, 3)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda u: torch.ones(len(u)), 0.0),  # no graph at all
        (lambda u: nn.Parameter(torch.ones(len(u))), 0.0),  # one that the pixels are no part of
        (lambda u: (u - u).sqrt().sum((1, 2, 3)), 0.0),  # a slope that is no number
    ],
)
def test_where_there_is_no_slope_it_is_zero(scored, function, expected):
    _, gradients = Passes(scored(function), rows=2).values_and_gradients(torch.rand(3, 1, 2, 2))
    assert torch.equal(gradients, torch.full((3, 1, 2, 2), expected))


@pytest.mark.parametrize(
    ("count", "size"), [(1, SMALLEST), (SMALLEST, SMALLEST), (SMALLEST + 1, 2 * SMALLEST), (300, 512), (500, 500)]
)
def test_a_graph_has_room_for_the_points_and_never_more_than_allowed(count, size):
    assert size_for(count, rows=500 if count == 500 else 512) == size


class Asks(nn.Module):
    """Looks at its input on the host, as a model may that nobody wrote for graphs."""

    def forward(self, images):
        bright = images.mean((1, 2, 3))
        return torch.stack([bright, bright.square(), bright * float(bright.sum() > -1)], 1)


@on_gpu
def test_replayed_passes_are_the_eager_ones(joint):
    score, points = score_of(joint().cuda()), torch.rand(75, 3, 32, 32, device="cuda")
    with strict(points.device, transforms=True):  # in TF32, kernels differ in the third digit
        eager = Passes(score, rows=50)
        eager.captures = False
        replayed = Passes(score, rows=50)
        for _ in range(WARM_UP + 3):
            points = torch.rand_like(points)
            assert torch.allclose(replayed.values(points), eager.values(points), rtol=1e-2, atol=2e-2)  # f in bfloat16
        fewer = torch.rand_like(points[:20])
        assert torch.allclose(replayed.values(fewer), eager.values(fewer), rtol=1e-2, atol=2e-2)
    assert set(replayed._graphs) == {32, 50}
    assert not eager._graphs


@on_gpu
def test_a_model_that_no_graph_can_hold_is_run_as_it_is(joint):
    score, points = score_of(joint(Asks()).cuda()), torch.rand(40, 3, 32, 32, device="cuda")
    passes = Passes(score, rows=512)
    expected = passes.values(points)
    for _ in range(WARM_UP + 2):
        assert torch.allclose(passes.values(points), expected, atol=1e-3)
    assert not passes.captures
    assert not passes._graphs
    torch.rand(3, device="cuda")  # and random numbers can still be drawn


@on_gpu
def test_an_attack_by_replayed_passes_finds_scores_that_the_model_has(joint):
    score, images = score_of(joint().cuda()), torch.rand(12, 3, 32, 32, device="cuda")
    attack = Ensemble((PGD(steps=20), APGD(iterations=20, restarts=2), Square(queries=40)))
    outcome = attack(score, images, 0.05)
    with torch.no_grad():
        assert torch.allclose(outcome.scores, score(outcome.images), atol=1e-4)
        assert (outcome.scores <= score.upper_bound(images, 0.05)).all()
    assert (outcome.scores > outcome.clean).float().mean() > 0.9
    assert (outcome.images - images).abs().max() <= 0.05 + 1e-6
