"""Upper bounds of whole networks: nothing in the ball exceeds them, and where they can be exact they are."""

import copy
import itertools
import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prood.bounds import (
    BlockedLinear,
    Box,
    Method,
    NegativeLinear,
    Norm,
    Normalise,
    Residual,
    concretise,
    interval,
    relax,
    upper_bound,
)
from prood.bounds.certificate import Arithmetic, crown_ibp
from prood.errors import BadValue, UnknownName, Unsupported

SEEDS = st.integers(0, 2**20)
EPS = st.one_of(st.sampled_from([0.0, 0.01, 0.1, 1.0]), st.floats(0, 0.5))
METHODS = ("ibp", "crown-ibp", "best")
SLACK = 1e-9


def images(count: int, shape: tuple[int, ...]) -> Tensor:
    return torch.rand(count, *shape, dtype=torch.float64)


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Sequential, tuple[int, ...]]:
    """A random scalar network in float64 from all layers that have linear rules, and the shape of its images."""
    torch.manual_seed(draw(SEEDS))
    shape = (draw(st.integers(1, 2)), draw(st.integers(4, 6)), draw(st.integers(4, 6)))
    layers: list[nn.Module] = []
    current = shape

    def add(*new: nn.Module) -> None:
        nonlocal current
        layers.extend(new)
        with torch.no_grad():
            probe = nn.Sequential(*new).double().eval()(torch.rand(2, *current, dtype=torch.float64))
        current = tuple(probe.shape[1:])

    def activation() -> nn.Module:
        leak, inplace = draw(st.sampled_from([None, None, 0.0, 0.1, 1.0])), draw(st.booleans())
        return nn.ReLU(inplace) if leak is None else nn.LeakyReLU(leak, inplace)

    def norm(width: int) -> nn.BatchNorm2d:
        layer = nn.BatchNorm2d(width, affine=draw(st.booleans()))
        layer.running_mean.normal_(std=0.3)
        layer.running_var.uniform_(0.2, 2)
        return layer

    if draw(st.booleans()):
        add(Normalise([0.5] * shape[0], [0.25] * shape[0]))
    for kind in draw(st.lists(st.sampled_from(["conv", "conv", "norm", "residual", "average", "max"]), max_size=3)):
        width = draw(st.integers(1, 3))
        if kind == "conv":
            mode = draw(st.sampled_from(["zeros", "circular"]))
            stride = draw(st.integers(1, 2))
            add(nn.Conv2d(current[0], width, 3, stride=stride, padding=1, padding_mode=mode), activation())
        elif kind == "norm":
            add(nn.Conv2d(current[0], width, 1, bias=False), norm(width), activation())
        elif kind == "residual":
            body = nn.Sequential(nn.Conv2d(current[0], width, 3, padding=1), activation(), nn.Conv2d(width, width, 1))
            shortcut = nn.Conv2d(current[0], width, 1)
            add(Residual(body, shortcut if width != current[0] or draw(st.booleans()) else None), activation())
        elif kind == "average":
            add(nn.AvgPool2d(2, ceil_mode=True))
        else:
            add(nn.MaxPool2d(3, 2, 1))
    add(nn.Dropout(), nn.Flatten())
    if draw(st.booleans()):
        add(nn.Linear(current[0], 4), activation())
    last = NegativeLinear(current[0]) if draw(st.booleans()) else nn.Linear(current[0], 1)
    return nn.Sequential(*layers, last).double().eval(), shape


@pytest.mark.slow
@settings(max_examples=60)
@given(networks(), EPS, SEEDS, st.sampled_from([None, (0.0, 1.0), (-1.0, 0.7)]))
def test_nothing_in_the_ball_exceeds_the_bounds(
    inside: Callable[..., Tensor],
    climb: Callable[..., Tensor],
    case: tuple[nn.Sequential, tuple[int, ...]],
    eps: float,
    seed: int,
    clip: tuple[float, float] | None,
) -> None:
    network, shape = case
    torch.manual_seed(seed)
    x = images(3, shape) * 1.4 - 0.2  # some pixels lie outside of [0, 1]
    box = Box.ball(x, eps, clip=clip)
    bounds = {
        method: upper_bound(network, x, eps, method=method, clip=clip, arithmetic="plain").detach()
        for method in METHODS
    }
    assert all(bound.shape == (3,) and bound.isfinite().all() for bound in bounds.values())
    torch.testing.assert_close(bounds["best"], torch.minimum(bounds["ibp"], bounds["crown-ibp"]), rtol=0, atol=0)

    lower = interval(network, box).lower[:, 0]
    found = climb(network, box)
    for point in inside(box, 6):
        value = network(point.clone())[:, 0]
        assert (value >= lower - SLACK).all()
        found = torch.maximum(found, value.detach())
    assert (found <= bounds["best"] + SLACK).all()


@pytest.mark.slow
@settings(max_examples=40)
@given(networks(), EPS, SEEDS)
def test_every_hidden_coordinate_stays_in_its_interval(
    inside: Callable[..., Tensor], case: tuple[nn.Sequential, tuple[int, ...]], eps: float, seed: int
) -> None:
    network, shape = case
    torch.manual_seed(seed)
    box = Box.ball(images(2, shape), eps)
    values = inside(box, 5)
    for layer in network:
        box = interval(layer, box)
        values = torch.stack([layer(value.clone()) for value in values])
        assert (values <= box.upper + SLACK).all()
        assert (values >= box.lower - SLACK).all()


@pytest.mark.slow
@settings(max_examples=40)
@given(networks(), SEEDS, st.floats(0, 1))
def test_any_slopes_are_sound(
    climb: Callable[..., Tensor], case: tuple[nn.Sequential, tuple[int, ...]], seed: int, eps: float
) -> None:
    network, shape = case
    torch.manual_seed(seed)
    box = Box.ball(images(2, shape), eps)
    shapes, current = {}, box
    for layer in network:
        if isinstance(layer, nn.ReLU | nn.LeakyReLU):
            shapes[layer] = current.radius.shape
        current = interval(layer, current)
    found = climb(network, box, 2)
    for extreme in (0.0, 1.0, None):
        slopes = {k: torch.rand(s) if extreme is None else torch.full(s, extreme) for k, s in shapes.items()}
        assert (found <= crown_ibp(network, box, slopes) + SLACK).all()


@pytest.mark.slow
@settings(max_examples=40)
@given(networks(), SEEDS)
def test_interval_bounds_grow_with_eps_and_start_at_the_output(
    case: tuple[nn.Sequential, tuple[int, ...]], seed: int
) -> None:
    network, shape = case
    torch.manual_seed(seed)
    x = images(2, shape)
    output = network(x.clone())[:, 0]
    for method in METHODS:
        torch.testing.assert_close(
            upper_bound(network, x, 0.0, method=method, arithmetic="plain"), output, rtol=1e-10, atol=1e-10
        )
    previous = output
    for eps in (0.0, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0):
        bound = upper_bound(network, x, eps, method="ibp", arithmetic="plain")
        assert (bound >= previous - SLACK).all()
        previous = bound
    everything = upper_bound(
        network, x, torch.inf, method="ibp", arithmetic="plain"
    )  # by eps = 1 the ball is the whole cube
    torch.testing.assert_close(previous, everything)


@pytest.mark.slow
@settings(max_examples=30)
@given(networks(), SEEDS, st.floats(0, 0.3), st.integers(1, 3))
def test_one_pass_for_points_and_boxes(
    case: tuple[nn.Sequential, tuple[int, ...]], seed: int, eps: float, count: int
) -> None:
    network, shape = case
    torch.manual_seed(seed)
    points, x = images(count, shape), images(2, shape)
    mixed, alone = Box.ball(x, eps, points=points), Box.ball(x, eps)
    together, separate = interval(network, mixed), interval(network, alone)
    close = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(together.points, network(points.clone()), **close)
    torch.testing.assert_close(together.lower, separate.lower, **close)
    torch.testing.assert_close(together.upper, separate.upper, **close)
    torch.testing.assert_close(crown_ibp(network, mixed), crown_ibp(network, alone), **close)


@pytest.mark.slow
@settings(max_examples=30)
@given(SEEDS, st.floats(0, 0.7))
def test_linear_bounds_of_an_affine_network_are_exact(seed: int, eps: float) -> None:
    """Against the largest output at the corners of the ball, all 2⁸ of them."""
    torch.manual_seed(seed)
    norm = nn.BatchNorm2d(3)
    norm.running_var.uniform_(0.5, 2)
    network = nn.Sequential(
        Normalise([0.5, 0.1], [0.25, 0.5]),
        Residual(nn.Conv2d(2, 2, 3, padding=1)),
        nn.Conv2d(2, 3, 2, padding=1, padding_mode="reflect", stride=2),
        norm,
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(3, 3),
        nn.LeakyReLU(1.0),
        nn.Linear(3, 1),
    )
    network = network.double().eval()
    x = images(1, (2, 2, 2))
    box = Box.ball(x, eps)
    signs = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=8)), dtype=torch.float64).reshape(-1, 2, 2, 2)
    largest = network(box.middle + box.radius * signs).max()
    torch.testing.assert_close(
        upper_bound(network, x, eps, method="crown-ibp", arithmetic="plain")[0], largest, rtol=1e-9, atol=1e-9
    )
    assert upper_bound(network, x, eps, method="ibp", arithmetic="plain")[0] >= largest - SLACK


def largest_output(network: nn.Sequential, box: Box) -> float:
    """The exact maximum of a network 2 → hidden → 1 over a box.

    It is linear between the lines on which a hidden unit changes sign, so its maximum is at a point where two such
    lines, or edges of the box, meet.
    """
    weight, bias = network[0].weight.detach(), network[0].bias.detach()
    edges = torch.eye(2, dtype=torch.float64)
    normals = torch.cat([weight, edges, edges])
    levels = torch.cat([-bias, box.lower[0], box.upper[0]])
    candidates = [box.lower[0], box.upper[0]]
    for i, j in itertools.combinations(range(len(levels)), 2):
        system = torch.stack([normals[i], normals[j]])
        if abs(torch.linalg.det(system)) > 1e-12:
            point = torch.linalg.solve(system, levels[[i, j]])
            if (point >= box.lower[0] - 1e-12).all() and (point <= box.upper[0] + 1e-12).all():
                candidates.append(point)
    return network(torch.stack(candidates)).max().item()


@pytest.mark.slow
@settings(max_examples=40)
@given(SEEDS, st.integers(1, 4), st.floats(0.001, 1), st.sampled_from([0.0, 0.2]))
def test_one_hidden_layer_against_the_exact_maximum(seed: int, hidden: int, eps: float, leak: float) -> None:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(leak), nn.Linear(hidden, 1)).double()
    x = images(1, (2,)) * 2 - 1
    box = Box.ball(x, eps, clip=None)
    exact = largest_output(network, box)
    for method in METHODS:
        assert upper_bound(network, x, eps, method=method, clip=None, arithmetic="plain").item() >= exact - SLACK
    if hidden == 1:  # increasing or decreasing in one linear form: nothing is lost
        assert upper_bound(network, x, eps, method="ibp", clip=None, arithmetic="plain").item() == pytest.approx(
            exact, abs=1e-9
        )
    if hidden == 1 and network[2].weight.item() > 0:
        assert upper_bound(network, x, eps, method="crown-ibp", clip=None, arithmetic="plain").item() == pytest.approx(
            exact, abs=1e-9
        )
    wide = torch.rand(2000, 2, dtype=torch.float64) * 2 - 1
    assert network(box.middle + box.radius * wide).max().item() <= exact + SLACK  # the reference itself


def test_linear_bounds_beat_intervals_where_signs_cancel() -> None:
    """relu(a + b) − relu(a − b + 10): the intervals forget that it is the same a."""
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    network[0].weight.data = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    network[0].bias.data = torch.tensor([5.0, 10.0], dtype=torch.float64)
    network[2].weight.data = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    x = torch.full((1, 2), 0.5, dtype=torch.float64)
    linear, box = (upper_bound(network, x, 0.5, method=m, arithmetic="plain").item() for m in ("crown-ibp", "ibp"))
    bias = network[2].bias.item()
    assert linear == pytest.approx(-3 + bias)  # all units are on: 2b − 5 is exact
    assert box == pytest.approx(-2 + bias)


@pytest.mark.slow
@pytest.mark.parametrize("slopes", [False, True])
def test_gradients_by_the_weights(slopes: bool) -> None:
    torch.manual_seed(5)
    network = nn.Sequential(
        Normalise([0.5], [0.25]),
        nn.Conv2d(1, 2, 3, padding=1),
        nn.ReLU(),
        Residual(nn.Conv2d(2, 2, 3, padding="same"), nn.Conv2d(2, 2, 1)),
        nn.LeakyReLU(0.1),
        nn.AvgPool2d(2),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(2, 2, 2, padding=1, padding_mode="circular"),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
        nn.ReLU(),
        NegativeLinear(3),
    ).double()
    with torch.no_grad():
        network[-3].bias += 0.5  # alive
    box = Box.ball(images(2, (1, 4, 4)), 0.05)
    names = [name for name, _ in network.named_parameters()]
    fixed = {network[2]: torch.rand(2, 2, 4, 4, dtype=torch.float64)} if slopes else None

    class Bounds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self) -> tuple[Tensor, Tensor]:
            return crown_ibp(self.network, box, fixed), interval(self.network, box).upper[:, 0]

    def bounds(*values: Tensor) -> tuple[Tensor, Tensor]:
        weights = {f"network.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(Bounds(), weights)

    linear, box_bound = bounds(*network.parameters())
    assert not torch.allclose(linear, box_bound)
    weights = [p.detach().clone().requires_grad_() for p in network.parameters()]
    assert torch.autograd.gradcheck(bounds, weights, atol=1e-6)


def test_gradients_by_slopes_and_images() -> None:
    """What α-CROWN needs, and an attack on the bound."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    x = images(2, (3,)).requires_grad_()
    alpha = torch.rand(2, 5, dtype=torch.float64).requires_grad_()

    def bound(x: Tensor, alpha: Tensor) -> Tensor:
        return crown_ibp(network, Box.ball(x, 0.3, clip=None), {network[1]: alpha})

    assert torch.autograd.gradcheck(bound, (x, alpha))


@pytest.mark.slow
@settings(max_examples=20)
@given(networks(), SEEDS)
def test_one_eps_per_image(case: tuple[nn.Sequential, tuple[int, ...]], seed: int) -> None:
    network, shape = case
    torch.manual_seed(seed)
    x, eps = images(3, shape), torch.tensor([0.0, 0.05, 0.4])
    for method in METHODS:
        together = upper_bound(network, x, eps, method=method, arithmetic="plain")
        alone = [upper_bound(network, x[i : i + 1], eps[i].item(), method=method, arithmetic="plain") for i in range(3)]
        torch.testing.assert_close(together, torch.cat(alone), rtol=1e-6, atol=1e-6)  # 0.05 is not 0.05f


@pytest.mark.slow
@settings(max_examples=20)
@given(networks(), SEEDS, st.floats(0, 0.3))
def test_single_precision(
    climb: Callable[..., Tensor], case: tuple[nn.Sequential, tuple[int, ...]], seed: int, eps: float
) -> None:
    network, shape = case
    torch.manual_seed(seed)
    x = images(2, shape)
    double = [upper_bound(network, x, eps, method=method, arithmetic="plain") for method in METHODS]
    network.float()
    single = [upper_bound(network, x.float(), eps, method=method, arithmetic="plain") for method in METHODS]
    assert all(bound.dtype == torch.float32 for bound in single)
    torch.testing.assert_close(torch.stack(single).double(), torch.stack(double), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("eps", [-0.1, math.nan, torch.tensor([0.1, -0.1]), torch.tensor([math.nan, 0.1])])
def test_a_radius_that_is_none_is_refused(eps: float | Tensor) -> None:
    with pytest.raises(BadValue):
        upper_bound(nn.Linear(3, 1), torch.rand(2, 3), eps)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UnknownName, match="'alpha'"):
        upper_bound(nn.Linear(3, 1), torch.rand(2, 3), 0.1, method="alpha")  # type: ignore[arg-type]


@pytest.mark.parametrize("network", [nn.Linear(3, 3), nn.Identity(), nn.Linear(3, 2)])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("arithmetic", get_args(Arithmetic))
def test_a_network_with_more_than_one_output_is_refused(
    network: nn.Module, method: str, arithmetic: Arithmetic
) -> None:
    """A sum of outputs, or a broadcast minimum, would look like a bound."""
    with pytest.raises(Unsupported):
        upper_bound(network, torch.rand(3, 3), 0.1, method=method, arithmetic=arithmetic)  # type: ignore[arg-type]
    box = Box.ball(torch.rand(3, 3), 0.1)
    with pytest.raises(Unsupported):
        crown_ibp(network, box)


@pytest.mark.parametrize("arithmetic", get_args(Arithmetic))
@pytest.mark.parametrize("kind", [nn.Linear, BlockedLinear])
def test_no_images_give_no_bounds(arithmetic: Arithmetic, kind: type[nn.Linear]) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), kind(8, 1)).eval()
    assert network(torch.rand(0, 1, 4, 4)).shape == (0, 1)
    for method in METHODS:
        bound = upper_bound(network, torch.rand(0, 1, 4, 4), 0.1, method=method, arithmetic=arithmetic)
        assert bound.shape == (0,)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("method", ["best", "auto"])
def test_where_a_layer_has_no_linear_rule_the_intervals_are_the_best(norm: Norm, method: Method) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 1))
    x = torch.rand(2, 3)
    expected = upper_bound(network, x, 0.1, norm=norm, method="ibp")
    torch.testing.assert_close(upper_bound(network, x, 0.1, norm=norm, method=method), expected)


def test_images_of_bytes_are_refused() -> None:
    with pytest.raises(Unsupported, match=r"torch\.uint8"):
        upper_bound(nn.Linear(3, 1), torch.zeros(2, 3, dtype=torch.uint8), 0.1)


def test_concretise_is_the_last_step_of_crown_ibp() -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    box = Box.ball(torch.rand(2, 3), 0.1)
    output, pullback = relax(network, box)
    torch.testing.assert_close(concretise(box, pullback, output.radius), crown_ibp(network, box))


@pytest.mark.parametrize("arithmetic", get_args(Arithmetic))
def test_networks_and_images_are_left_as_they_were(arithmetic: Arithmetic) -> None:
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    x = torch.randn(2, 3)
    before, weights = x.clone(), copy.deepcopy(network.state_dict())
    upper_bound(network, x, 0.1, clip=None, arithmetic=arithmetic)
    assert torch.equal(x, before)
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("method", METHODS)
def test_half_precision_products_keep_a_small_radius(method: str) -> None:
    """Under autocast the bound may be coarse, but it must still grow with a small eps."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1))
    x = torch.rand(3, 1, 6, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        bounds = [upper_bound(network, x, eps, method=method, arithmetic="plain") for eps in (0.0, 1e-3, 1e-2)]  # type: ignore[arg-type]
    assert all(bound.dtype == torch.float32 for bound in bounds)
    assert (bounds[0] < bounds[1]).all()
    assert (bounds[1] < bounds[2]).all()
    exact = upper_bound(network, x, 1e-2, method=method, arithmetic="plain")  # type: ignore[arg-type]
    torch.testing.assert_close(bounds[2], exact.detach(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("arithmetic", get_args(Arithmetic))
@pytest.mark.parametrize("seed", range(5))
def test_a_saturated_network_is_bounded_by_exactly_its_ceiling(seed: int, arithmetic: Arithmetic) -> None:
    """In float32: where every last hidden unit may be off, the bound is the last bias, not a bit less by rounding."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(50, 40), nn.ReLU(), NegativeLinear(40, bias=0.1 + seed))
    nn.init.constant_(network[1].bias, -0.5)
    images = torch.rand(20, 1, 5, 10)
    for method in ("ibp", "best"):
        assert (upper_bound(network, images, 0.9, method=method, arithmetic=arithmetic) == network[3].bias).all()


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "best"])
def test_a_float32_bound_is_never_below_the_value_at_the_image(method: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 30), nn.ReLU())
    network.append(NegativeLinear(30))
    images = torch.rand(200, 1, 10, 10)
    values = network(torch.cat([images, images]))[
        :200, 0
    ]  # the batch size of the bound: another one may round otherwise
    assert (upper_bound(network, images, 0.0, method=method, arithmetic="plain") >= values).all()  # type: ignore[arg-type]


def test_the_linear_bound_takes_the_better_of_two_choices_of_slopes() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), NegativeLinear(20)).double()
    images = torch.rand(300, 6, dtype=torch.float64)
    box = Box.ball(images, 0.1)
    hidden = network[1](network[0](images))
    at_image = {network[1]: network[0](images) > 0, network[3]: network[2](hidden) > 0}
    choices = torch.stack([crown_ibp(network, box), crown_ibp(network, box, at_image)])
    torch.testing.assert_close(
        upper_bound(network, images, 0.1, method="crown-ibp", arithmetic="plain"), choices.amin(0)
    )
    assert set(choices.argmin(0).tolist()) == {0, 1}  # neither wins always
