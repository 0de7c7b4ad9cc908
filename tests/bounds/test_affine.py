"""Every affine rule against its layer written out as a matrix: centre, radius and pullback must be those of W and b."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prood.bounds import Box, NegativeLinear, Normalise, Plane, UnsupportedLayer, interval, relax, upper_bound
from prood.bounds.affine import Conv2dRule, transpose

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")  # torch, on speed
SEEDS = st.integers(0, 2**20)


def matrix(layer: nn.Module, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """W (outputs × inputs) and b of an affine layer, by what it does to the unit vectors."""
    size = math.prod(shape)
    with torch.no_grad():
        offset = layer(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
        units = layer(torch.eye(size, dtype=torch.float64).reshape(size, *shape)).flatten(1)
    return (units - offset).T, offset


def some_box(shape: tuple[int, ...], points: int, boxes: int = 2) -> Box:
    radius = torch.rand(boxes, *shape, dtype=torch.float64) * torch.randint(0, 2, (boxes, *shape))
    return Box(torch.randn(points + boxes, *shape, dtype=torch.float64), radius)


def check(layer: nn.Module, shape: tuple[int, ...], points: int = 1) -> None:
    layer = layer.double().eval()
    box = some_box(shape, points)
    weight, offset = matrix(layer, shape)
    output, pullback = relax(layer, box)
    close = {"rtol": 1e-10, "atol": 1e-10}

    assert len(output.points) == points
    torch.testing.assert_close(output.centre, layer(box.centre))
    exact = box.radius.flatten(1) @ weight.abs().T
    if getattr(layer, "padding_mode", "zeros") == "zeros":
        torch.testing.assert_close(output.radius.flatten(1), exact, **close)
    else:  # a pixel that is mirrored into its own window counts there twice, as if the copies were independent
        assert (output.radius.flatten(1) >= exact - 1e-10).all()

    slope = torch.randn_like(output.radius)
    plane = pullback(Plane(slope, torch.ones(len(slope), dtype=torch.float64)))
    assert plane.slope.shape == box.radius.shape
    torch.testing.assert_close(plane.slope.flatten(1), slope.flatten(1) @ weight, **close)
    torch.testing.assert_close(plane.offset, 1 + slope.flatten(1) @ offset, **close)

    # <Ax, s> = <x, Aᵀs>: the two products meet on a random pair.
    x = torch.randn_like(box.radius)
    linear = layer(x).flatten(1) - offset
    torch.testing.assert_close((linear * slope.flatten(1)).sum(1), (x * plane.slope).flatten(1).sum(1), **close)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Conv2d, tuple[int, int, int]]:
    torch.manual_seed(draw(SEEDS))
    groups = draw(st.sampled_from([1, 1, 2]))
    channels, width = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, dilation = draw(pair), draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    height, columns = draw(st.integers(5, 8)), draw(st.integers(5, 8))
    mode = draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    stride: tuple[int, int] = draw(pair)
    padding: str | tuple[int, int] = draw(
        st.one_of(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.sampled_from(["valid", "same"]))
    )
    if padding == "same":
        stride = (1, 1)
    layer = nn.Conv2d(
        channels,
        width,
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=mode,
    )
    return layer, (channels, height, columns)


@pytest.mark.slow
@settings(max_examples=80)
@given(convolutions(), st.integers(0, 2))
def test_convolution(case: tuple[nn.Conv2d, tuple[int, int, int]], points: int) -> None:
    check(*case, points)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("size", [1, 2, 20])
@pytest.mark.parametrize("groups", [1, 2])
def test_no_input_goes_into_more_products_than_the_rounding_counts(mode: str, size: int, groups: int) -> None:
    pad = {"reflect": size - 1, "circular": size}.get(mode, 15)
    layer = nn.Conv2d(2, 4, 2 * pad + 1, padding=pad, groups=groups, padding_mode=mode).double()
    nn.init.ones_(layer.weight)
    like = torch.ones(1, 2, size, size, dtype=torch.float64)
    rule = Conv2dRule()
    products = rule.adjoint(layer, torch.ones_like(layer(like)), like)
    assert products.max() <= rule.sums(layer, like).fan_out


def test_a_convolution_of_ones_own_needs_a_rule_of_its_own() -> None:
    class Standardised(nn.Conv2d):
        """Leaves `forward` alone, and yet convolves with other weights than it holds."""

        def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return super()._conv_forward(input, weight - weight.mean((1, 2, 3), keepdim=True), bias)

    patched = nn.Conv2d(1, 2, 3)
    patched._conv_forward = lambda x, weight, bias: nn.functional.conv2d(x, weight**3, bias)  # type: ignore[method-assign]
    for layer in (Standardised(1, 2, 3), patched):
        network = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), NegativeLinear(18, 1)).eval()
        for method in ("ibp", "best", "crown"):
            with pytest.raises(UnsupportedLayer):
                upper_bound(network, torch.rand(1, 1, 5, 5), 0.1, method=method)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [5, 6, 7, 8, 9])
def test_convolution_whose_stride_leaves_a_margin(stride: int, size: int) -> None:
    torch.manual_seed(size)
    check(nn.Conv2d(1, 2, 3, stride=stride, padding=1), (1, size, size + 1))
    check(nn.Conv2d(1, 2, 2, stride=stride, dilation=3), (1, size, size + 1))


@st.composite
def pools(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, int, int]]:
    torch.manual_seed(draw(SEEDS))
    shape = (draw(st.integers(1, 2)), draw(st.integers(3, 8)), draw(st.integers(3, 8)))
    if draw(st.booleans()):
        side = st.one_of(st.none(), st.integers(1, 4))
        return nn.AdaptiveAvgPool2d(draw(st.one_of(st.integers(1, 3), st.tuples(side, side)))), shape
    kernel = draw(st.one_of(st.integers(1, 3), st.tuples(st.integers(1, 3), st.integers(1, 3))))
    smallest = kernel if isinstance(kernel, int) else min(kernel)
    layer = nn.AvgPool2d(
        kernel,
        draw(st.one_of(st.none(), st.integers(1, 3))),
        padding=draw(st.integers(0, smallest // 2)),
        ceil_mode=draw(st.booleans()),
        count_include_pad=draw(st.booleans()),
        divisor_override=draw(st.sampled_from([None, None, 1, 5])),
    )
    return layer, shape


@pytest.mark.slow
@settings(max_examples=80)
@given(pools(), st.integers(0, 2))
@example((nn.AvgPool2d(2), (2, 4, 6)), 1)
@example((nn.AvgPool2d(2, divisor_override=3), (2, 4, 6)), 0)
@example((nn.AvgPool2d(2, ceil_mode=True), (1, 5, 7)), 0)
@example((nn.AvgPool2d((2, 2), (2, 2)), (1, 4, 4)), 0)
@example((nn.AvgPool2d(3, 2), (1, 6, 6)), 0)  # two windows of three in six, and yet no tiles
@example((nn.AvgPool2d(3, 3, 1), (1, 6, 6)), 0)
def test_average_pool(case: tuple[nn.Module, tuple[int, int, int]], points: int) -> None:
    check(*case, points)


@pytest.mark.parametrize(("size", "shape"), [(1, (2, 3, 5)), (2, (2, 4, 6)), (3, (1, 6, 3))])
def test_average_pool_of_tiles_takes_a_short_cut_to_the_same_transpose(size: int, shape: tuple[int, int, int]) -> None:
    layer = nn.AvgPool2d(size)
    box = some_box(shape, 0)
    output, pullback = relax(layer, box)
    slope = torch.randn_like(output.radius)
    generic = transpose(layer, slope, box.radius)
    torch.testing.assert_close(pullback(Plane(slope, torch.zeros(2))).slope, generic)


def test_a_pool_that_turns_signs_around_is_refused() -> None:
    box = Box.ball(torch.rand(1, 1, 4, 4), 0.1)
    with pytest.raises(UnsupportedLayer, match="divisor_override"):
        interval(nn.AvgPool2d(2, divisor_override=-4), box)


@settings(max_examples=40)
@given(SEEDS, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([(3,), (3, 4), (3, 2, 5)]))
def test_batch_norm(seed: int, affine: bool, negative: bool, points: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(seed)
    layer = (nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d)(3, affine=affine)
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.01, 2)
    if affine:
        nn.init.normal_(layer.weight)  # also negative scales
        nn.init.normal_(layer.bias)
    check(layer, shape, int(points))


@pytest.mark.parametrize("shape", [(1, 3), (4, 3)])
def test_batch_norm_in_training_is_refused_and_left_alone(shape: tuple[int, int]) -> None:
    layer = nn.BatchNorm1d(3)
    with pytest.raises(UnsupportedLayer, match=r"model\.eval\(\)"):
        interval(layer, Box.ball(torch.rand(shape), 0.1))
    assert torch.equal(layer.running_mean, torch.zeros(3))
    assert layer.num_batches_tracked == 0


def test_batch_norm_without_running_statistics_is_refused() -> None:
    layer = nn.BatchNorm2d(3, track_running_stats=False).eval()
    with pytest.raises(UnsupportedLayer):
        interval(layer, Box.ball(torch.rand(2, 3, 2, 2), 0.1))


@settings(max_examples=40)
@given(SEEDS, st.booleans(), st.sampled_from([(4,), (2, 4), (2, 3, 4)]), st.integers(0, 2))
def test_linear_on_the_last_axis(seed: int, bias: bool, shape: tuple[int, ...], points: int) -> None:
    torch.manual_seed(seed)
    check(nn.Linear(4, 3, bias=bias), shape, points)
    check(NegativeLinear(4, 2), shape, points)


@pytest.mark.parametrize("shape", [(3, 2, 5), (3, 1, 1)])
@pytest.mark.parametrize("points", [0, 2])
def test_normalise(shape: tuple[int, ...], points: int) -> None:
    check(Normalise([0.4914, -2.0, 0.0], [0.247, 3.0, 1e-3]), shape, points)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Identity(),
        nn.Dropout(0.5),
        nn.Dropout2d(0.5),
        nn.Dropout(0.5, inplace=True),
        nn.Flatten(),
        nn.Flatten(1, 2),
        nn.Flatten(2),
        nn.Flatten(2, 2),
        nn.Flatten(-3),
        nn.Flatten(-2, -1),
    ],
)
@pytest.mark.parametrize("points", [0, 2])
def test_layers_that_only_reshape(layer: nn.Module, points: int) -> None:
    check(layer, (2, 3, 4), points)


@pytest.mark.parametrize("layer", [nn.Flatten(0), nn.Flatten(-4), nn.Flatten(0, 1)])
def test_mixing_the_images_of_a_batch_is_refused(layer: nn.Module) -> None:
    with pytest.raises(UnsupportedLayer):
        interval(layer, Box.ball(torch.rand(2, 1, 2, 2), 0.1))


@pytest.mark.parametrize("layer", [nn.Dropout(0.1), nn.Dropout2d(0.9), nn.Dropout(1.0)])
def test_dropout_is_refused_while_it_is_on(layer: nn.Module) -> None:
    box = Box.ball(torch.rand(2, 3, 4, 4), 0.1)
    for bound in (interval, relax):
        with pytest.raises(UnsupportedLayer, match=r"Dropout.*model\.eval\(\)"):
            bound(layer.train(), box)
    assert torch.equal(interval(layer.eval(), box).centre, box.centre)
    off = nn.Dropout(0.0).train()
    assert torch.equal(interval(off, box).radius, box.radius)


@settings(max_examples=20)
@given(convolutions())
def test_single_precision_agrees(case: tuple[nn.Conv2d, tuple[int, int, int]]) -> None:
    layer, shape = case
    box = Box.ball(torch.rand(2, *shape, dtype=torch.float64), 0.3)
    single, _ = relax(layer.float(), Box(box.centre.float(), box.radius.float()))
    assert single.centre.dtype == single.radius.dtype == torch.float32
    double, _ = relax(layer.double(), box)
    torch.testing.assert_close(single.lower.double(), double.lower, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(single.upper.double(), double.upper, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(1, 2, 3, padding="same"),
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(1, 2, 3, stride=2),
        nn.AdaptiveAvgPool2d(3),
        nn.AvgPool2d(2, 1, 1),
        nn.AvgPool2d(2),
    ],
)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_bounds_without_gradients(layer: nn.Module, mode: Callable[[], torch.no_grad]) -> None:
    """`torch.inference_mode` is how careful users call a model; the transposes must not need autograd."""
    torch.manual_seed(0)
    images = torch.rand(2, 1, 6, 6)
    network = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(layer(images)[0].numel(), 1))
    expected = upper_bound(network, images, 0.1, arithmetic="plain")
    assert expected.requires_grad
    with mode():
        bound = upper_bound(network, images, 0.1, arithmetic="plain")
    assert not bound.requires_grad
    torch.testing.assert_close(bound, expected.detach())


def test_weights_behind_a_parametrisation_are_seen() -> None:
    """Spectral norm and its like make a subclass that leaves forward alone: the rule must use the effective weight."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    layer.parametrizations.weight.original0.data.mul_(2.5)
    check(layer, (4,))


@settings(max_examples=30)
@given(st.one_of(convolutions(), pools()), SEEDS)
def test_points_of_the_box_stay_in_the_interval(
    inside: Callable[..., Tensor], case: tuple[nn.Module, tuple[int, ...]], seed: int
) -> None:
    layer, shape = case[0].double(), case[1]
    assume(math.prod(shape) < 200)
    torch.manual_seed(seed)
    box = some_box(shape, 0)
    output = interval(layer, box)
    for point in inside(box, 6):
        value = layer(point)
        assert (value <= output.upper + 1e-9).all()
        assert (value >= output.lower - 1e-9).all()
