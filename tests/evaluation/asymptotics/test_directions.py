"""Which directions decay and which stay, against the network itself far out."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from prood.bounds import NegativeLinear
from prood.errors import BadValue, UnknownName, Unsupported
from prood.evaluation.asymptotics import KINDS, Fates, fates, random_directions
from prood.models import Discriminator, ProoD, small
from prood.models.discriminators import beyond_images

SHAPE = (1, 8, 8)
COUNT = 400
Make = Callable[..., nn.Sequential]


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_are_what_the_network_does(make: Make, exact: Make, kind: str) -> None:
    g = Discriminator(make(1)).eval()
    directions = random_directions(COUNT, SHAPE, kind, seed=3)
    found = fates(g, directions)
    assert found.decays.any()
    assert found.stays.any()  # or this test would say little
    assert (found.decays ^ found.stays).all()
    function = exact(make(1))

    def at(alpha: float) -> torch.Tensor:
        with torch.no_grad():
            return function(alpha * directions.double()).squeeze(1)

    for alpha in (1e3, 1e4, 1e5, 1e6):
        there = found.beyond < alpha
        assert there.float().mean() > 0.5
        fall = at(alpha) - at(2 * alpha)
        torch.testing.assert_close(fall[there], (alpha * found.rate)[there], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(at(alpha)[there & found.stays], found.limit[there & found.stays])
    # The deployed network, in float32, agrees on which is which.
    deployed = g(1e6 * directions)
    assert (deployed < -100)[found.decays & (found.rate > 0.01)].all()
    assert (deployed > -20)[found.stays].all()
    assert (found.limit[found.decays] == -torch.inf).all()


def test_the_start_moves_the_limit_and_not_the_verdict(make: Make, exact: Make) -> None:
    g = Discriminator(make(1)).eval()
    directions = random_directions(COUNT, SHAPE)
    torch.manual_seed(0)
    starts = 20 * torch.randn(COUNT, *SHAPE)
    here, there = fates(g, directions), fates(g, directions, starts)
    assert torch.equal(here.stays, there.stays)
    assert torch.equal(here.rate, there.rate)
    far = exact(make(1))(starts.double() + 1e8 * directions.double()).squeeze(1)
    torch.testing.assert_close(far[there.stays], there.limit[there.stays])


def test_a_limit_below_the_ceiling() -> None:
    """A last unit that does not see the direction, but is on: g stays, and lower than its bias."""
    hidden = nn.Linear(2, 2)
    with torch.no_grad():
        hidden.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        hidden.bias.copy_(torch.tensor([0.5, 0.0]))
    g = nn.Sequential(hidden, nn.ReLU(), NegativeLinear(2, bias=3.0)).eval()
    with torch.no_grad():
        g[2].log_weight.copy_(torch.tensor([[0.0, 0.0]]))
    found = fates(g, torch.tensor([[0.0, -1.0], [0.0, 1.0], [-1.0, 0.0]]))
    assert found.stays.tolist() == [True, False, True]
    assert found.limit.tolist() == [2.5, -torch.inf, 3.0]
    assert found.rate.tolist() == [0.0, 1.0, 0.0]
    assert found.summary() == {
        "directions": 3,
        "decays": 1,
        "stays": 2,
        "grows": 0,
        "undecided": 0,
        "smallest_rate": 1.0,
        "largest_limit": 3.0,
    }


def test_a_wrong_network_is_seen_to_grow(make: Make) -> None:
    wrong = make(0)
    wrong[-2] = nn.LeakyReLU(0.5)
    found = fates(wrong, random_directions(COUNT, SHAPE))
    assert found.grows.any()
    assert (found.limit[found.grows] == torch.inf).all()


def test_what_float64_cannot_tell_is_said() -> None:
    nothing = torch.zeros(2, dtype=torch.bool)
    found = Fates(nothing, nothing, nothing, torch.zeros(2), torch.zeros(2), torch.zeros(2))
    assert found.summary()["undecided"] == 2
    hidden = nn.Linear(3, 1, bias=False).double()
    for weights in ([1.0, 1e16, -1e16], [1e16, 3.0, -1e16]):  # sums to 0 or 4, and both of them are wrong
        with torch.no_grad():
            hidden.weight.copy_(torch.tensor([weights]))
        g = nn.Sequential(hidden, nn.ReLU(), NegativeLinear(1)).eval()
        assert fates(g, torch.ones(1, 3)).summary()["undecided"] == 1


def test_a_joint_model_is_its_discriminator(g: Discriminator) -> None:
    directions = random_directions(20, SHAPE)
    joint = ProoD(small(4, width=4), g, 1.0).eval()
    assert torch.equal(fates(joint, directions).rate, fates(g, directions).rate)


def test_batches_make_no_difference(g: Discriminator) -> None:
    directions = random_directions(33, SHAPE)
    whole, parts = fates(g, directions), fates(g, directions, rows=7)
    assert torch.equal(whole.stays, parts.stays)
    torch.testing.assert_close(whole.rate, parts.rate)


def test_a_guard_makes_every_direction_decay(make: Make, exact: Make) -> None:
    g = Discriminator(make(1)).eval()
    directions = random_directions(COUNT, SHAPE)
    directions[0] = 0
    directions[0, 0, 3, 4] = -1e-3  # the smallest change that leaves the box
    start = torch.full((1, *SHAPE), 0.25)
    bare, guarded = fates(g, directions, start), fates(g.with_far_penalty(0.5), directions, start)
    assert bare.stays.any()
    assert guarded.decays.all()
    torch.testing.assert_close(guarded.rate - bare.rate, 0.5 * directions.double().abs().flatten(1).sum(1))
    assert guarded.beyond[0] >= 249

    def at(alpha: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            there = start.double() + alpha.view(-1, 1, 1, 1) * directions.double()
            return exact(make(1))(there).squeeze(1) - 0.5 * beyond_images(there)

    drop = at(guarded.beyond) - at(2 * guarded.beyond)
    torch.testing.assert_close(drop, guarded.beyond * guarded.rate, rtol=1e-6, atol=1e-6)


def test_random_directions_follow_the_seed_and_their_kind() -> None:
    uniform, gaussian = (random_directions(500, SHAPE, kind) for kind in KINDS)
    assert torch.equal(uniform, random_directions(500, SHAPE))
    assert not torch.equal(uniform, random_directions(500, SHAPE, seed=1))
    assert uniform.abs().max() <= 0.5
    assert gaussian.abs().max() > 3
    assert abs(uniform.mean()) < 0.01
    assert abs(gaussian.std() - 1) < 0.02


def test_bad_requests_are_refused(g: Discriminator) -> None:
    with pytest.raises(BadValue):
        fates(g, torch.zeros(1, *SHAPE))
    with pytest.raises(BadValue):
        fates(g, torch.full((1, *SHAPE), torch.inf))
    with pytest.raises(Unsupported):
        fates(nn.Linear(3, 1), torch.ones(1, 3))
    with pytest.raises(UnknownName):
        random_directions(3, SHAPE, "cauchy")
    with pytest.raises(BadValue):
        random_directions(0, SHAPE)
