"""Where "auto" spends its budget."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Budget, certificate, upper_bound
from prood.bounds.tighter import pipeline


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 10), nn.ReLU(), nn.Linear(10, 1))


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many images each stage has seen."""
    seen = {"climb": 0, "alpha": 0, "crown": 0, "branch": 0}
    for name in seen:
        stage = getattr(pipeline.Tightening, name)

        def counted(self, state, name=name, stage=stage):
            seen[name] += len(state.bound)
            return stage(self, state)

        monkeypatch.setattr(pipeline.Tightening, name, counted)
    return seen


@pytest.mark.parametrize("arithmetic", ["plain", "sound"])
def test_decided_images_are_left_alone(
    network: nn.Sequential, visits: dict[str, int], quick: Budget, arithmetic
) -> None:
    x = torch.rand(12, 5)
    best = upper_bound(network, x, 0.1, arithmetic=arithmetic)
    how = {"method": "auto", "arithmetic": arithmetic, "budget": quick}
    below = upper_bound(network, x, 0.1, threshold=best.max().item() + 1, **how)
    assert torch.equal(below, best.detach())
    assert not any(visits.values())
    above = upper_bound(network, x, 0.1, threshold=network(x).min().item() - 1, **how)
    assert torch.equal(above, best.detach())
    assert visits == {"climb": 12, "alpha": 0, "crown": 0, "branch": 0}


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ["plain", "sound"])
def test_each_stage_sees_what_the_one_before_left_open(
    network: nn.Sequential, visits: dict[str, int], quick: Budget, arithmetic
) -> None:
    x = torch.rand(40, 5)
    best = upper_bound(network, x, 0.2, arithmetic=arithmetic).detach()
    exact = upper_bound(network, x, 0.2, method="bab", arithmetic=arithmetic, budget=Budget(splits=200, seconds=5))
    threshold = exact + 0.3 * (best - exact)  # one per image, between the truth and what the linear bound proves
    visits.update(dict.fromkeys(visits, 0))
    budget = replace(quick, splits=400, steps=20)
    bound = upper_bound(network, x, 0.2, method="auto", arithmetic=arithmetic, threshold=threshold, budget=budget)
    assert (bound <= best).all()
    decided = bound < threshold
    assert decided.float().mean() > 0.8
    assert (best < threshold).float().mean() < 0.2
    assert 40 >= visits["alpha"] >= visits["crown"] >= visits["branch"]
    assert visits["alpha"] > visits["branch"]


def test_without_a_threshold_it_optimises_the_slopes(
    network: nn.Sequential, visits: dict[str, int], quick: Budget
) -> None:
    x = torch.rand(6, 5)
    bound = upper_bound(network, x, 0.1, method="auto", budget=quick)
    assert torch.equal(bound, upper_bound(network, x, 0.1, method="alpha-crown", budget=quick))
    assert visits["crown"] == 0


def test_chunks_do_not_matter(network: nn.Sequential, quick: Budget) -> None:
    x = torch.rand(5, 5)

    def bounds(values: int) -> Tensor:
        return upper_bound(network, x, 0.1, method="crown", budget=replace(quick, values=values))

    torch.testing.assert_close(bounds(1), bounds(1 << 24), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["best", "alpha-crown"])
def test_a_budget_holds_from_the_first_pass_over_a_ball_on(network: nn.Sequential, quick: Budget, method, monkeypatch):
    asked = []
    monkeypatch.setattr(certificate, "in_ball", lambda network, box, budget: asked.append(budget))
    upper_bound(network, torch.rand(2, 5), 0.1, norm="l2", method=method, budget=quick)
    assert asked == [quick]


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_points_outside_of_the_ball_decide_nothing(network: nn.Sequential, quick: Budget, norm, monkeypatch) -> None:
    """The box around the ball contains larger values than the ball: none may be taken for attained."""
    x, found = torch.rand(8, 5), []
    stage = pipeline.Tightening.climb

    def watched(self, state):
        state = stage(self, state)
        found.append(state.found)
        return state

    monkeypatch.setattr(pipeline.Tightening, "climb", watched)
    bound = upper_bound(network, x, 0.3, method="bab", norm=norm, clip=None, budget=replace(quick, splits=100))
    upper_bound(network, x, 0.3, method="auto", norm=norm, clip=None, threshold=bound - 1e-3, budget=quick)
    assert torch.cat(found).numel() == 8
    assert (torch.cat(found) <= bound).all()
