"""The methods against each other, against what is attained, and against the exact maximum."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Box, Budget, NegativeLinear, upper_bound
from prood.bounds.registry import NoLinearRule
from prood.bounds.tighter.branching import SplitTree
from prood.bounds.tighter.leaves import Leaf
from prood.errors import BadValue

METHODS = ("ibp", "crown-ibp", "best", "alpha-crown", "crown", "bab")
ARITHMETICS = ("plain", "sound")
Case = Callable[[int], tuple[nn.Sequential, Tensor]]


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("eps", [0.02, 0.15])
def test_each_method_is_at_most_the_one_before_and_nothing_exceeds_it(
    case: Case, quick: Budget, climb: Callable[..., Tensor], inside: Callable[..., Tensor], arithmetic, seed, eps
) -> None:
    network, x = case(seed)
    bounds = {m: upper_bound(network, x, eps, method=m, arithmetic=arithmetic, budget=quick) for m in METHODS}
    for tighter, looser in (("alpha-crown", "best"), ("crown", "alpha-crown"), ("bab", "crown")):
        assert (bounds[tighter] <= bounds[looser]).all(), tighter
    assert (bounds["best"] <= bounds["crown-ibp"]).all()
    box = Box.ball(x, eps)
    found = climb(network, box, starts=4)
    for point in inside(box, 20):
        found = torch.maximum(found, network(point).detach()[:, 0])
    slack = 0 if arithmetic == "sound" else 1e-5
    assert (found <= bounds["bab"] + slack).all()


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_each_method_brings_something(case: Case, quick: Budget, arithmetic) -> None:
    network, x = case(1)
    eps = 0.03 if isinstance(network[-1], NegativeLinear) else 0.15  # which saturates at its bias
    means = [
        upper_bound(network, x, eps, method=method, arithmetic=arithmetic, budget=quick).mean().item()
        for method in ("crown-ibp", "alpha-crown", "crown", "bab")
    ]
    assert means == sorted(means, reverse=True)
    assert len(set(means)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_branching_reaches_the_exact_maximum_of_a_tiny_network(arithmetic) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
        x = torch.rand(2, 2)
        line = torch.linspace(-1, 1, 801)
        grid = torch.stack(torch.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
        exact = torch.stack([network(image + 0.4 * grid).max() for image in x]).detach()
        budget = Budget(seconds=20, split_steps=30)
        bound = upper_bound(network, x, 0.4, method="bab", arithmetic=arithmetic, clip=None, budget=budget)
        assert (bound >= exact - 1e-6).all()
        torch.testing.assert_close(bound, exact, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_more_splits_bring_tighter_bounds(quick: Budget) -> None:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.rand(4, 6)
    means = [
        upper_bound(network, x, 0.3, method="bab", budget=replace(quick, splits=splits)).mean() for splits in (0, 8, 80)
    ]
    assert means[0] > means[1] > means[2]


def test_no_seconds_no_splits(quick: Budget) -> None:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))
    x = torch.rand(4, 6)
    crown = upper_bound(network, x, 0.3, method="crown", budget=quick)
    for idle in (replace(quick, seconds=0), replace(quick, splits=0)):
        bound = upper_bound(network, x, 0.3, method="bab", budget=idle)
        assert (bound <= crown).all()
        torch.testing.assert_close(bound, crown, rtol=0, atol=1e-3)  # the slopes are kept in half precision


@pytest.mark.slow
@pytest.mark.parametrize("method", ["alpha-crown", "crown", "bab"])
def test_one_eps_per_image_no_clip_and_eps_zero(case: Case, quick: Budget, method) -> None:
    network, x = case(0)
    eps = torch.linspace(0, 0.2, len(x))
    together = upper_bound(network, x, eps, method=method, clip=None, budget=quick)
    for i, radius in enumerate(eps.tolist()):
        alone = upper_bound(network, x[i : i + 1], radius, method=method, clip=None, budget=quick)
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(together[0], network(x).detach()[0, 0], rtol=1e-4, atol=1e-4)
    assert upper_bound(network, x[:0], 0.1, method=method, budget=quick).shape == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [2, 8, 64])
def test_branching_does_not_depend_on_the_other_images(quick: Budget, batch: int) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 1))
    x = torch.rand(5, 6)
    budget = replace(quick, batch=batch, splits=40, seconds=100)
    together = upper_bound(network, x, 0.4, method="bab", clip=None, budget=budget)
    alone = [upper_bound(network, image[None], 0.4, method="bab", clip=None, budget=budget) for image in x]
    assert (together < upper_bound(network, x, 0.4, method="crown", clip=None, budget=budget)).all()
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-4)  # but for rounding in the search


def test_no_more_splits_than_allowed() -> None:
    tree = SplitTree(Leaf(0, 1.0, {}, {}, {}, candidate=(0, 0)), target=-1.0, found=-1.0, limit=21)
    for unit in range(1, 40):
        if not tree.open:
            break
        for child in tree.grow(8):
            tree.push(replace(child, candidate=(0, unit)))
    assert tree.splits == 21
    assert len(tree.heap) == 22


@pytest.mark.slow
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_in_every_mode_and_without_gradients(quick: Budget, case: Case, mode, arithmetic) -> None:
    network, x = case(1)
    expected = upper_bound(network, x, 0.1, method="crown", arithmetic=arithmetic, budget=quick)
    with mode():
        bound = upper_bound(network, x, 0.1, method="crown", arithmetic=arithmetic, budget=quick)
    assert torch.equal(bound, expected)
    assert not bound.requires_grad
    assert all(p.grad is None and p.requires_grad for p in network.parameters())


def test_a_layer_without_a_linear_rule(quick: Budget) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(18, 1))
    x = torch.rand(2, 1, 5, 5)
    with pytest.raises(NoLinearRule):
        upper_bound(network, x, 0.1, method="alpha-crown", budget=quick)
    automatic = upper_bound(network, x, 0.1, method="auto", threshold=0.0, budget=quick)
    assert torch.equal(automatic, upper_bound(network, x, 0.1))
    plain = {m: upper_bound(network, x, 0.1, method=m, arithmetic="plain", budget=quick) for m in METHODS}
    assert (plain["bab"] <= plain["crown-ibp"]).all()


def test_a_wrapper_that_is_more_than_its_network_is_left_alone(quick: Budget) -> None:
    """Only if the row of layers gives the very box that the wrapper's rule gives is it taken apart."""
    import prood.bounds as bounds

    class Negated(nn.Module):
        def __init__(self, network: nn.Sequential) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Tensor) -> Tensor:
            return self.network(x) + 1

    @bounds.register(Negated)
    class _Rule(bounds.Rule[Negated]):
        def interval(self, layer: Negated, box: Box) -> Box:
            inner = bounds.interval(layer.network, box)
            return inner.onto(inner.centre + 1, inner.radius)

    torch.manual_seed(0)
    network = Negated(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    x = torch.rand(2, 3)
    assert (upper_bound(network, x, 0.1, method="auto", arithmetic="plain", budget=quick) >= network(x)[:, 0]).all()


@pytest.mark.parametrize("wrong", [{"steps": -1}, {"batch": 0}, {"seconds": float("nan")}, {"values": 0}])
def test_a_budget_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadValue):
        Budget(**wrong)  # type: ignore[arg-type]


def test_a_gpu_gets_larger_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1 << 37))
    assert (Budget().values_on(cpu), Budget().batch_on(cpu)) == (1 << 25, 16)
    assert (Budget().values_on(gpu), Budget().batch_on(gpu)) == (1 << 30, 512)
    given = Budget(values=3, batch=2)
    assert (given.values_on(gpu), given.batch_on(gpu)) == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("method", ["best", "alpha-crown", "crown", "bab"])
def test_networks_without_a_relu_and_with_one_in_front(method, norm, quick: Budget) -> None:
    torch.manual_seed(0)
    x = torch.rand(3, 1, 3, 3)
    for front in ([], [nn.ReLU()]):
        network = nn.Sequential(*front, nn.Flatten(), nn.Linear(9, 1))
        bound = upper_bound(network, x, 0.1, method=method, norm=norm, budget=quick)
        step = 0.1 * network[-1].weight.sign().reshape(1, 1, 3, 3)  # the worst one, as far as pixels allow
        if norm != "linf":
            step = step / step.norm(p=2 if norm == "l2" else 1) * 0.1 * (1 - 1e-6)
        assert (network((x + step).clamp(0, 1))[:, 0] <= bound).all()
        assert (bound <= upper_bound(network, x, 0.1, method="ibp", norm=norm)).all()
