"""The ReLU for compiled training is the ReLU of every other bound, in value and in gradient."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prood.bounds import Box, NegativeLinear, Normalise, Plane, activations, concretise, interval, relax
from prood.bounds.activations import ReLURule, _BoxReLU, box_relu, parts, plane_relu, span
from prood.bounds.certificate import crown_ibp


def behind_relu(centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    return box_relu(*parts(centre, radius), radius)


def before_relu(slope: Tensor, centre: Tensor, radius: Tensor, alpha: Tensor | None) -> tuple[Tensor, Tensor]:
    return plane_relu(slope, parts(centre, radius)[1], radius, alpha)


SEEDS = st.integers(0, 2**20)
POINTS = st.integers(0, 2)
LAST = torch.channels_last


def away_from_kinks(shape: tuple[int, ...], points: int = 0) -> tuple[Tensor, Tensor]:
    """Centres and radii of dead, unstable and active units, no end closer to zero than 0.05, and points before them."""
    centre = torch.randn(points + shape[0], *shape[1:], dtype=torch.float64)
    centre = centre + 0.06 * centre.sign()
    size = centre[points:].abs()
    share = 0.1 + 0.9 * torch.rand_like(size)
    return centre, torch.where(torch.rand_like(size) < 0.5, size + share, (size - 0.05) * share)


def wanting_gradients(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_() for tensor in tensors]


def both(
    function: Callable[..., Any], inputs: list[Tensor], weights: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """What a function returns, and the gradients of its weighted sum."""
    inputs = wanting_gradients(*inputs)
    outputs = list(function(*inputs))
    gradients = torch.autograd.grad(outputs, inputs, [w.to(x.dtype) for w, x in zip(weights, outputs, strict=True)])
    return [output.detach() for output in outputs], list(gradients)


def assert_same(one: tuple[list[Tensor], list[Tensor]], two: tuple[list[Tensor], list[Tensor]], atol: float) -> None:
    for a, b in zip([*one[0], *one[1]], [*two[0], *two[1]], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol)


# The box


@settings(max_examples=60)
@given(SEEDS, POINTS, st.sampled_from([(3, 7), (2, 3, 2, 4)]))
def test_boxes_and_their_gradients_are_those_of_the_eager_rule(seed: int, points: int, shape: tuple[int, ...]) -> None:
    torch.manual_seed(seed)
    inputs = list(away_from_kinks(shape, points))
    weights = [torch.randn_like(x) for x in inputs]
    assert_same(both(behind_relu, inputs, weights), both(_BoxReLU.apply, inputs, weights), 1e-13)


def with_kinks(shape: tuple[int, ...], points: int) -> tuple[Tensor, Tensor]:
    """Some boxes have an end on zero, some are centred there, and some are points, also the point zero."""
    centre, radius = away_from_kinks(shape, points)
    kind = torch.randint(0, 8, radius.shape)
    radius = torch.where(kind == 0, centre[points:].abs(), radius)
    centre[points:][(kind == 1) | (kind == 2)] = 0
    radius[(kind == 2) | (kind == 3)] = 0
    return centre, radius


@settings(max_examples=60)
@given(SEEDS, POINTS)
def test_boxes_with_kinks_are_those_of_the_eager_rule(seed: int, points: int) -> None:
    """A gradient there may be that of either side, or anything between them; the values are the same."""
    torch.manual_seed(seed)
    centre, radius = with_kinks((4, 9), points)
    for one, two in zip(behind_relu(centre, radius), _BoxReLU.apply(centre, radius), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-13)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("points", [0, 2])
def test_the_gradient_of_the_box_is_that_of_finite_differences(seed: int, points: int) -> None:
    torch.manual_seed(seed)
    assert torch.autograd.gradcheck(behind_relu, wanting_gradients(*away_from_kinks((3, 6), points)))


# The plane


def pulled(
    centre: Tensor, radius: Tensor, slope: Tensor, slopes: Tensor | None, fused: bool, **plane: Any
) -> tuple[Tensor, Tensor]:
    """The plane before a ReLU whose lower lines may be given, by the eager rule, or by the one for compilers."""
    layer = nn.ReLU()
    with mock.patch.object(torch.compiler, "is_compiling", return_value=fused):
        pull = ReLURule().pullback(layer, Box(centre, radius), {} if slopes is None else {layer: slopes})
        result = pull(Plane(slope, torch.arange(len(slope), dtype=slope.dtype), **plane))
    return result.slope, result.offset


def both_ways(inputs: list[Tensor], weights: list[Tensor], slopes: Tensor | None, **plane: Any) -> list[Any]:
    return [both(lambda *x, way=way: pulled(*x, slopes, way, **plane), inputs, weights) for way in (True, False)]


@pytest.mark.slow
@settings(max_examples=60)
@given(
    SEEDS,
    POINTS,
    st.sampled_from([(3, 7), (2, 3, 2, 4)]),
    st.sampled_from(["middle", "bool", "numbers", "outside"]),
    st.booleans(),
)
def test_planes_and_their_gradients_are_those_of_the_eager_rule(
    seed: int, points: int, shape: tuple[int, ...], lower: str, middle: bool
) -> None:
    """Whatever lower lines are given: none, flags, numbers, or numbers outside [0, 1], which no line may have; and
    also for a plane that does not want them."""
    torch.manual_seed(seed)
    centre, radius = away_from_kinks(shape, points)
    radius[torch.rand_like(radius) < 0.1] = 0
    drawn = torch.rand(shape)
    slopes = {"middle": None, "bool": drawn > 0.5, "numbers": drawn, "outside": 10 * drawn - 5}[lower]
    weights = [torch.randn_like(radius), torch.randn(shape[0], dtype=torch.float64)]
    fused, eager = both_ways([centre, radius, torch.randn_like(radius)], weights, slopes, middle=middle)
    assert_same(fused, eager, 1e-12)


@settings(max_examples=60)
@given(SEEDS, POINTS, st.booleans())
def test_planes_over_boxes_with_kinks_are_those_of_the_eager_rule(seed: int, points: int, given_lines: bool) -> None:
    torch.manual_seed(seed)
    centre, radius = with_kinks((4, 9), points)
    slope = torch.randn_like(radius)
    slope[torch.rand_like(slope) < 0.2] = 0
    slopes = torch.rand_like(radius) if given_lines else None
    for one, two in zip(*(pulled(centre, radius, slope, slopes, fused) for fused in (True, False)), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("points", [0, 2])
@pytest.mark.parametrize("given_lines", [False, True])
def test_the_gradient_of_the_plane_is_that_of_finite_differences(seed: int, points: int, given_lines: bool) -> None:
    torch.manual_seed(seed)
    centre, radius = away_from_kinks((2, 5), points)
    slope = torch.randn_like(radius)
    slope = slope + 0.05 * slope.sign()
    alpha = torch.rand_like(radius) if given_lines else None
    inputs = wanting_gradients(slope, centre, radius)
    assert torch.autograd.gradcheck(lambda s, c, r: before_relu(s, c, r, alpha), inputs)


def test_a_point_has_no_say_in_planes() -> None:
    """They belong to the boxes alone: what the points are does not matter, and their gradient is zero."""
    torch.manual_seed(0)
    centre, radius = away_from_kinks((3, 4), 2)
    other = torch.cat([torch.randn(2, 4), centre[2:]])
    inputs, weights = [radius, torch.randn_like(radius)], [torch.randn_like(radius), torch.randn(3)]
    one, two = (both(lambda c, r, s: before_relu(s, c, r, None), [c, *inputs], weights) for c in (centre, other))
    assert_same(one, two, 0)
    assert not one[1][0][:2].any()
    assert one[1][0][2:].any()


# Nothing at all: a unit that is zero for every image of the ball


def test_span_is_the_width_and_one_where_there_is_none() -> None:
    tiny = torch.finfo(torch.float32).tiny
    low, high = torch.tensor([-2.0, -1.0, 0.0, 0.0, -tiny]), torch.tensor([3.0, 0.0, 4.0, 0.0, 0.0])
    assert span(low, high).tolist() == [5.0, 1.0, 4.0, 1.0, tiny]


@pytest.mark.parametrize("fused", [False, True])
def test_the_gradient_of_the_chord_over_a_single_point_zero_is_finite(fused: bool) -> None:
    """Divided by something tiny it would be 1/tiny, and many of those more than float32 can hold."""
    inputs = [torch.zeros(2, 5), torch.zeros(2, 5), torch.tensor([[1.0, -1.0, 0.0, 2.0, 3.0]] * 2)]
    weights = [torch.full((2, 5), 4.0), torch.ones(2)]
    outputs, gradients = both(lambda *x: pulled(*x, None, fused), inputs, weights)
    assert outputs[0].tolist() == [[0.0] * 5] * 2
    assert outputs[1].tolist() == [0.0, 1.0]  # as before the layer
    assert all(gradient.abs().max() <= 30 for gradient in gradients)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.usefixtures("compiler")
def test_a_network_with_a_channel_of_zeros_has_finite_gradients(compiled: bool) -> None:
    layers = network()
    with torch.no_grad():
        layers[1].weight[1] = 0
        layers[1].bias[1] = 0
    bound = torch.compile(crown_ibp, backend="aot_eager", fullgraph=True) if compiled else crown_ibp
    loss = bound(layers, Box.ball(torch.rand(3, 1, 6, 6), 0.05)).sum()
    for gradient in torch.autograd.grad(loss, list(layers.parameters())):
        assert gradient.abs().max() < 1e3


# Half precision and the order of pixels in memory


def halves(points: int, shape: tuple[int, ...] = (3, 4, 5, 6)) -> tuple[Tensor, Tensor]:
    centre, radius = (x.bfloat16().contiguous(memory_format=LAST) for x in away_from_kinks(shape, points))
    return centre, radius


@pytest.mark.parametrize("points", [0, 2])
def test_half_precision_boxes_are_the_rounded_float32_ones(points: int) -> None:
    """The sums are made in float32 and rounded once at the end. Gradients are sums of a few numbers of the half."""
    torch.manual_seed(0)
    inputs = list(halves(points))
    weights = [torch.randn_like(x) for x in inputs]
    exact = both(behind_relu, [x.float() for x in inputs], [x.float() for x in weights])
    rounded = both(behind_relu, inputs, weights)
    assert {x.dtype for x in (*rounded[0], *rounded[1])} == {torch.bfloat16}
    for one, two in zip(rounded[0], exact[0], strict=True):
        assert torch.equal(one, two.bfloat16())
    for one, two in zip(rounded[1], exact[1], strict=True):
        torch.testing.assert_close(one.float(), two, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("points", [0, 2])
@pytest.mark.parametrize("given_lines", [False, True])
def test_planes_over_half_precision_boxes_keep_their_digits(points: int, given_lines: bool) -> None:
    """Slopes and offsets add up over many layers: they are float32. Gradients have the type of what they belong to."""
    torch.manual_seed(0)
    centre, radius = halves(points)
    slope = torch.randn(radius.shape).contiguous(memory_format=LAST)
    alpha = torch.rand_like(slope) if given_lines else None
    weights = [torch.randn_like(slope), torch.randn(len(slope))]
    exact, rounded = (
        both(lambda s, c, r: before_relu(s, c, r, alpha), [slope, c, r], weights)
        for c, r in ((centre.float(), radius.float()), (centre, radius))
    )
    assert [x.dtype for x in rounded[0]] == [torch.float32] * 2
    assert [x.dtype for x in rounded[1]] == [torch.float32, torch.bfloat16, torch.bfloat16]
    assert_same((rounded[0], rounded[1][:1]), (exact[0], exact[1][:1]), 1e-5)
    for one, two in zip(rounded[1][1:], exact[1][1:], strict=True):
        torch.testing.assert_close(one.float(), two, rtol=0.02, atol=0.02)


def test_the_ends_of_a_half_precision_box_are_exact_sums() -> None:
    """In bfloat16 a radius of 1/1000 would drown in a centre of 1."""
    torch.manual_seed(0)
    centre = torch.randn(4, 9).bfloat16()
    radius = (torch.rand(3, 9) * 1e-3).bfloat16()
    box = Box(centre, radius)
    assert torch.equal(box.upper, centre[1:].float() + radius.float())
    assert torch.equal(box.lower, centre[1:].float() - radius.float())
    assert torch.equal(box.size, centre[1:].float().abs() + radius.float())
    assert (box.lower < box.upper).all()


@pytest.mark.parametrize("points", [0, 1, 3])
def test_parts_are_the_points_and_the_middles(points: int) -> None:
    box = Box(torch.randn(points + 2, 3), torch.rand(2, 3))
    for one, two in zip(parts(box.centre, box.radius), (box.points, box.middle), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("points", [1, 3])
def test_channels_last_stays_channels_last(kind: torch.dtype, points: int) -> None:
    """A convolution in the fast order would first have to copy anything else. Also the gradient of the box with respect
    to the centre, which is put together from points and boxes."""
    torch.manual_seed(0)
    centre, radius = (x.to(kind).contiguous(memory_format=LAST) for x in away_from_kinks((3, 4, 5, 6), points))
    slope = torch.randn(radius.shape).contiguous(memory_format=LAST)
    weights = [torch.randn(x.shape, dtype=kind).contiguous(memory_format=LAST) for x in (centre, radius)]
    outputs, gradients = both(behind_relu, [centre, radius], weights)
    weights = [weights[1], torch.randn(3)]
    (behind, _), others = both(lambda s, r: before_relu(s, centre, r, None), [slope, radius], weights)
    kept = [*outputs, *gradients, behind, *others]
    assert [x.is_contiguous(memory_format=LAST) for x in kept] == [True] * len(kept)


def test_a_plane_in_another_order_comes_out_channels_last() -> None:
    torch.manual_seed(0)
    centre, radius = away_from_kinks((3, 4, 5, 6), 1)
    behind, _ = before_relu(torch.randn_like(radius), centre, radius, None)
    assert behind.is_contiguous(memory_format=LAST)


# The rules in a compiled network


@pytest.fixture
def compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        Normalise((0.4,), (0.3,)),
        nn.Conv2d(1, 3, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 4, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 6),
        nn.ReLU(),
        NegativeLinear(6),
    )


def by_intervals(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    output = interval(layers, box)
    return output.points, output.lower, output.upper


def by_planes(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    return (crown_ibp(layers, box),)


def by_planes_and_points(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    output, _ = relax(layers, box)
    return output.points, crown_ibp(layers, box)


def by_given_lines(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    return (crown_ibp(layers, box, {layers[4]: box.radius.new_ones(3, 4, 2, 2) / 4}),)


def by_lines_at_a_point(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    return (crown_ibp(layers, Box(box.centre, box.radius, anchored=True)),)


def by_steep_lines(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    return (crown_ibp(layers, box, {layers[4]: box.radius.new_full((3, 4, 2, 2), 5.0)}),)


def by_lines_of_the_plane(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    output, pullback = relax(layers, box)
    return (concretise(box, pullback, output.radius, slopes={layers[4]: box.radius.new_ones(3, 4, 2, 2) / 4}),)


def by_lines_at_the_middle(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    output, pullback = relax(layers, box, {layers[4]: box.radius.new_ones(3, 4, 2, 2) / 4})
    return (concretise(box, pullback, output.radius, middle=True),)


def by_many_planes(layers: nn.Sequential, box: Box) -> tuple[Tensor, ...]:
    """Five planes over three boxes."""
    output, pullback = relax(layers, box)
    owner = torch.tensor([0, 2, 1, 1, 0])
    plane = pullback(Plane(output.radius.new_ones(5, 1), output.radius.new_zeros(5), owner=owner))
    return plane.slope, plane.offset


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the functions for compilers the rules call, as often as they do."""
    calls: list[str] = []

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*inputs: Any) -> Any:
            calls.append(name)
            return function(*inputs)

        return wrapper

    monkeypatch.setattr(activations, "box_relu", counting("box", box_relu))
    monkeypatch.setattr(activations, "plane_relu", counting("plane", plane_relu))
    return calls


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("bound", "boxes", "planes"),
    [
        (by_intervals, 3, 0),
        (by_planes, 3, 3),
        (by_planes_and_points, 6, 3),
        (by_given_lines, 3, 3),
        (by_steep_lines, 3, 3),
        (by_lines_at_the_middle, 3, 3),
        (by_lines_at_a_point, 3, 0),
        (by_lines_of_the_plane, 3, 0),
        (by_many_planes, 3, 0),
    ],
)
def test_a_compiled_bound_is_the_eager_one(
    bound: Any, boxes: int, planes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In value and in the gradients of all weights. The network has three ReLUs; a plane with a choice of its own takes
    the way of the eager rule, all others that for compilers."""
    layers = network()
    images = torch.rand(3, 1, 6, 6)

    def run(function: Any) -> tuple[list[Tensor], list[Tensor]]:
        outputs = function(layers, Box.ball(images, 0.05, points=images.flip(0)))
        loss = sum((i + 1) * torch.nn.functional.softplus(output).sum() for i, output in enumerate(outputs))
        return list(outputs), list(torch.autograd.grad(loss, list(layers.parameters()), allow_unused=True))

    calls = counted(monkeypatch)
    eager = run(bound)
    assert calls == []
    assert all(gradient.any() for gradient in eager[1] if gradient is not None)
    monkeypatch.delattr(activations, "_BoxReLU")
    compiled = run(torch.compile(bound, backend="aot_eager", fullgraph=True))
    assert_same(compiled, eager, 2e-5)
    assert (calls.count("box"), calls.count("plane")) == (boxes, planes)


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(("slope", "allowed"), [(5.0, 1.0), (-5.0, 0.0)])
def test_no_line_is_steeper_than_the_relu_or_falls(slope: float, allowed: float) -> None:
    """Such a line would not lie below it: the bound would be wrong. Compiled or not, the nearest line that does."""
    layers = network()
    box = Box.ball(torch.rand(3, 1, 6, 6), 0.05)

    def bound(value: float) -> Tensor:
        return crown_ibp(layers, box, {layers[4]: torch.full((3, 4, 2, 2), value)})

    expected = bound(allowed)
    compiled = torch.compile(bound, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(bound(slope), expected)
    torch.testing.assert_close(compiled(slope), expected)
    assert not torch.allclose(bound(0.5), expected)  # it matters
