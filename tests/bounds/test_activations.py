"""ReLU, leaky ReLU and maximum pooling: intervals are exact, planes lie above the function on the whole box."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from prood.bounds import Box, Plane, UnsupportedLayer, interval, relax

SEEDS = st.integers(0, 2**20)
LEAKS = st.one_of(st.sampled_from([0.0, 0.01, 1.0]), st.floats(0, 1))


def some_box(shape: tuple[int, ...], points: int = 0, spread: float = 1.0, boxes: int = 2) -> Box:
    """Boxes with edges of length zero among them, and with ends that lie exactly on zero."""
    centre = torch.randn(points + boxes, *shape, dtype=torch.float64)
    radius = spread * torch.rand(boxes, *shape, dtype=torch.float64)
    kind = torch.randint(0, 6, radius.shape)
    radius[kind == 0] = 0
    radius = torch.where(kind == 1, centre[points:].abs(), radius)  # touches zero
    centre[points:][kind == 2] = 0
    return Box(centre, radius)


def assert_plane_above(
    layer: nn.Module, box: Box, inside: Callable[..., Tensor], slopes: dict[nn.Module, Tensor] | None = None
) -> None:
    """Σ s·f(x) ≤ Σ s'·x + o' at points of the box, for random s and its pullback s', o'."""
    output, pullback = relax(layer, box, slopes)
    slope = torch.randn_like(output.radius)
    plane = pullback(Plane(slope, torch.zeros(len(slope), dtype=slope.dtype)))
    assert plane.slope.shape == box.radius.shape
    for point in inside(box):
        value = (slope * layer(point.clone())).flatten(1).sum(1)
        assert (value <= (plane.slope * point).flatten(1).sum(1) + plane.offset + 1e-9).all()


def activation(leak: float | None, inplace: bool = False) -> nn.Module:
    return nn.ReLU(inplace) if leak is None else nn.LeakyReLU(leak, inplace)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("leak", [None, 0.25])
def test_a_sound_box_behind_it_contains_the_exact_ends(leak: float | None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    radius = 1 + torch.rand(500, 1, dtype=dtype)
    centre = torch.randint(-40, 40, (500, 1)) * torch.finfo(dtype).eps - radius  # where centre + radius cancels
    box = Box(centre, radius, sound=True, overflow=torch.zeros(500, dtype=torch.bool))
    layer = activation(leak)
    behind = interval(layer, box)
    slope = Fraction(leak or 0)
    ends = [(behind.lower, -1), (behind.upper, 1)]
    for found, side in ends:
        for c, r, end in zip(
            centre.flatten().tolist(), radius.flatten().tolist(), found.flatten().tolist(), strict=True
        ):
            exact = Fraction(c) + side * Fraction(r)
            assert side * (Fraction(end) - max(exact, slope * exact)) >= 0


@pytest.mark.slow
@settings(max_examples=60)
@given(SEEDS, st.one_of(st.none(), LEAKS), st.booleans(), st.integers(0, 2), st.sampled_from([0.0, 0.1, 3.0]))
def test_activation_maps_ends_to_ends(seed: int, leak: float | None, inplace: bool, points: int, spread: float) -> None:
    torch.manual_seed(seed)
    layer = activation(leak, inplace)
    box = some_box((3, 2, 2), points, spread)
    before = box.centre.clone(), box.radius.clone()
    output = interval(layer, box)
    assert torch.equal(box.centre, before[0])  # also where the layer works in place
    assert torch.equal(box.radius, before[1])
    torch.testing.assert_close(output.lower, layer(box.lower), rtol=0, atol=1e-12)
    torch.testing.assert_close(output.upper, layer(box.upper), rtol=0, atol=1e-12)
    torch.testing.assert_close(output.points, layer(box.points.clone()), rtol=0, atol=0)
    assert (output.radius >= 0).all()


@settings(max_examples=60)
@given(SEEDS, st.one_of(st.none(), LEAKS), st.booleans(), st.integers(0, 2))
def test_planes_over_an_activation(
    inside: Callable[..., Tensor], seed: int, leak: float | None, inplace: bool, points: int
) -> None:
    torch.manual_seed(seed)
    assert_plane_above(activation(leak, inplace), some_box((4, 3), points, 2.0), inside)


@settings(max_examples=60)
@given(SEEDS, st.one_of(st.none(), LEAKS), st.sampled_from([0.0, 0.5, 1.0, None, "bool", "outside"]))
def test_any_slopes_of_the_lower_line_are_sound(
    inside: Callable[..., Tensor], seed: int, leak: float | None, value: float | str | None
) -> None:
    torch.manual_seed(seed)
    layer, box = activation(leak), some_box((4, 3), 0, 2.0)
    slopes = torch.rand_like(box.radius) if value is None else torch.full_like(box.radius, 0.5)
    if isinstance(value, float):
        slopes.fill_(value)
    if value == "bool":
        slopes = torch.rand_like(box.radius) > 0.5
    if value == "outside":  # clamped to what is sound
        slopes = torch.randn_like(box.radius) * 5
    assert_plane_above(layer, box, inside, {layer: slopes})


def test_slopes_of_other_layers_do_not_matter() -> None:
    layer, box = nn.ReLU(), some_box((5,))
    plane = Plane(torch.randn(2, 5, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    plain = relax(layer, box)[1](plane)
    other = relax(layer, box, {nn.ReLU(): torch.rand(7)})[1](plane)
    assert torch.equal(plain.slope, other.slope)


@pytest.mark.parametrize("leak", [None, 0.0, 0.2, 1.0])
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("slopes", [None, 0.5])
def test_planes_are_exact_away_from_zero(leak: float | None, side: int, slopes: float | None) -> None:
    """Also with slopes given: where the unit is stable they must not loosen anything."""
    torch.manual_seed(0)
    layer = activation(leak)
    radius = torch.rand(2, 5, dtype=torch.float64)
    radius[:, 0] = 0
    box = Box(side * radius, radius)  # one end on zero, or both
    given_slopes = {} if slopes is None else {layer: torch.full_like(radius, slopes)}
    slope = torch.randn_like(radius)
    plane = relax(layer, box, given_slopes)[1](Plane(slope, torch.zeros(2, dtype=torch.float64)))
    for point in (box.lower, box.middle, box.upper):
        value = (slope * layer(point)).sum(1)
        torch.testing.assert_close((plane.slope * point).sum(1) + plane.offset, value)


@pytest.mark.parametrize("leak", [None, 0.25])
def test_the_upper_line_is_the_chord(leak: float | None) -> None:
    layer = activation(leak)
    box = Box(torch.tensor([[1.0]]), torch.tensor([[3.0]]))  # [−2, 4]
    plane = relax(layer, box)[1](Plane(torch.ones(1, 1), torch.zeros(1)))
    for end in (-2.0, 4.0):
        assert plane.slope.item() * end + plane.offset.item() == pytest.approx(layer(torch.tensor(end)).item())


@pytest.mark.parametrize("slope", [-0.1, 1.5, math.nan])
def test_leaky_slopes_outside_of_zero_to_one_are_refused(slope: float) -> None:
    with pytest.raises(UnsupportedLayer):
        interval(nn.LeakyReLU(slope), some_box((2,)))


@pytest.mark.parametrize("points", [0, 3])
def test_gradient_of_the_boxed_relu(points: int) -> None:
    """The hand-written backward pass against finite differences, and against autograd of the plain formula."""
    torch.manual_seed(points)
    centre = torch.randn(points + 3, 8, dtype=torch.float64, requires_grad=True)
    radius = torch.rand(3, 8, dtype=torch.float64).requires_grad_()

    def ends(c: Tensor, r: Tensor) -> tuple[Tensor, ...]:
        output = interval(nn.ReLU(), Box(c, r))
        return output.points, output.lower, output.upper

    assert torch.autograd.gradcheck(ends, (centre, radius))
    box = Box(centre, radius)
    weights = [torch.randn_like(x) for x in (box.points, box.lower, box.upper)]
    plain = box.monotone(F.relu)
    expected = sum((w * x).sum() for w, x in zip(weights, (plain.points, plain.lower, plain.upper), strict=True))
    actual = sum((w * x).sum() for w, x in zip(weights, ends(centre, radius), strict=True))
    for one, other in zip(
        torch.autograd.grad(actual, (centre, radius)), torch.autograd.grad(expected, (centre, radius)), strict=True
    ):
        torch.testing.assert_close(one, other)


@st.composite
def max_pools(draw: st.DrawFn) -> tuple[nn.MaxPool2d, tuple[int, int, int]]:
    torch.manual_seed(draw(SEEDS))
    kernel = draw(st.one_of(st.integers(1, 3), st.tuples(st.integers(1, 3), st.integers(1, 3))))
    smallest = kernel if isinstance(kernel, int) else min(kernel)
    layer = nn.MaxPool2d(
        kernel,
        draw(st.one_of(st.none(), st.integers(1, 3), st.tuples(st.integers(1, 3), st.integers(1, 3)))),
        padding=draw(st.integers(0, smallest // 2)),
        dilation=draw(st.sampled_from([1, 1, 2, (1, 2)])),
        ceil_mode=draw(st.booleans()),
    )
    return layer, (draw(st.integers(1, 2)), draw(st.integers(5, 8)), draw(st.integers(5, 8)))


@pytest.mark.slow
@settings(max_examples=80)
@given(max_pools(), st.integers(0, 2), st.sampled_from([0.0, 0.05, 1.0]))
@example((nn.MaxPool2d(3, 2, 1), (2, 7, 8)), 1, 0.2)
@example((nn.MaxPool2d(2, ceil_mode=True), (1, 5, 7)), 0, 0.2)
@example((nn.MaxPool2d(3, 1, 1, dilation=2, ceil_mode=True), (1, 6, 5)), 0, 0.2)
def test_max_pool(
    inside: Callable[..., Tensor], case: tuple[nn.MaxPool2d, tuple[int, int, int]], points: int, spread: float
) -> None:
    layer, shape = case
    box = some_box(shape, points, spread)
    output = interval(layer, box)
    torch.testing.assert_close(output.lower, layer(box.lower), rtol=0, atol=1e-12)
    torch.testing.assert_close(output.upper, layer(box.upper), rtol=0, atol=1e-12)
    torch.testing.assert_close(output.points, layer(box.points))
    assert_plane_above(layer, box, inside)


@settings(max_examples=40)
@given(max_pools())
def test_max_pool_of_a_point_is_exact(case: tuple[nn.MaxPool2d, tuple[int, int, int]]) -> None:
    """Where one entry wins for certain, its window has no slack: neither at eps = 0 nor when all are far apart."""
    layer, shape = case
    values = torch.randperm(math.prod(shape)).double().reshape(1, *shape)
    for radius in (0.0, 0.49):
        box = Box.ball(values, radius, clip=None)
        output, pullback = relax(layer, box)
        slope = torch.randn_like(output.radius)
        plane = pullback(Plane(slope, torch.zeros(1, dtype=torch.float64)))
        for point in (box.lower, values, box.upper):
            value = (slope * layer(point)).sum()
            torch.testing.assert_close((plane.slope * point).sum() + plane.offset[0], value)


def test_max_pool_with_ties_is_sound(inside: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    for radius in (0.0, 0.5, 1.0):
        values = torch.randint(0, 3, (4, 2, 6, 6)).double()
        assert_plane_above(nn.MaxPool2d(3, 2, 1), Box.ball(values, radius, clip=None), inside)


def test_max_pool_that_returns_indices_is_refused() -> None:
    box = Box.ball(torch.rand(1, 1, 4, 4), 0.1)
    for bound in (interval, relax):
        with pytest.raises(UnsupportedLayer, match="return_indices"):
            bound(nn.MaxPool2d(2, return_indices=True), box)


@pytest.mark.parametrize("points", [0, 2])
def test_the_fused_relu_is_the_plain_one(monkeypatch: pytest.MonkeyPatch, points: int) -> None:
    """The compiler gets the plain form: both must be the same box."""
    torch.manual_seed(0)
    box = some_box((50,), points, 2.0)
    fused = interval(nn.ReLU(), box)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    plain = interval(nn.ReLU(), box)
    torch.testing.assert_close(fused.centre, plain.centre, rtol=0, atol=1e-14)
    torch.testing.assert_close(fused.radius, plain.radius, rtol=0, atol=1e-14)
