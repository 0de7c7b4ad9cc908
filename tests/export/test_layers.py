"""The twins are the layers: the same values, the same transposes, the same account of how they round."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from prood.bounds import Box, NegativeLinear
from prood.bounds.activations import ReLURule
from prood.bounds.registry import rule_for
from prood.export.layers import FixedNegative, Rectifier, Tiles, Windows

CONVOLUTIONS = {
    "plain": nn.Conv2d(2, 3, 3, padding=1),
    "stride": nn.Conv2d(2, 3, 3, stride=2, padding=1),
    "skips": nn.Conv2d(2, 3, 2, stride=3),
    "oblong": nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(0, 1)),
    "dilated": nn.Conv2d(2, 3, 3, dilation=(1, 2), padding=(2, 1), bias=False),
}
POOLS = {"rest": nn.AvgPool2d(2), "oblong": nn.AvgPool2d((3, 2)), "whole": nn.AvgPool2d(1)}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("sides", [(7, 9), (8, 8)])
def test_windows_are_the_convolution(name, sides):
    layer = CONVOLUTIONS[name].double()
    twin = Windows.of(layer)
    x = torch.randn(4, 2, *sides, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    torch.testing.assert_close(twin(x), y)
    assert twin.weight is layer.weight
    slope = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, x, slope)
    torch.testing.assert_close(rule_for(twin).adjoint(twin, slope, x), expected)
    torch.testing.assert_close(rule_for(twin).apply_absolute(twin, x), rule_for(layer).apply_absolute(layer, x))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_windows_round_as_the_convolution_does(name):
    layer = CONVOLUTIONS[name].double()
    twin = Windows.of(layer)
    live = (torch.rand(3, 2, 8, 7) < 0.5).double()
    ours, theirs = rule_for(twin).sums(twin, live), rule_for(layer).sums(layer, live)
    assert torch.equal(ours.terms, theirs.terms)
    assert ours.terms.unique().numel() > 2
    assert (ours.fan_out, ours.weight, ours.extra, ours.stretch) == (
        theirs.fan_out,
        theirs.weight,
        theirs.extra,
        theirs.stretch,
    )
    assert torch.equal(torch.as_tensor(ours.offset), torch.as_tensor(theirs.offset))


@pytest.mark.parametrize("name", POOLS)
def test_tiles_are_the_pooling(name):
    layer = POOLS[name]
    twin = Tiles(layer.kernel_size)
    x = torch.randn(4, 2, 7, 9, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    torch.testing.assert_close(twin(x), y)
    slope = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, x, slope)
    torch.testing.assert_close(rule_for(twin).adjoint(twin, slope, x), expected)
    ours, theirs = rule_for(twin).sums(twin, x.abs()), rule_for(layer).sums(layer, x.abs())
    assert torch.equal(ours.terms, theirs.terms)
    assert (ours.fan_out, ours.extra, ours.stretch) == (theirs.fan_out, theirs.extra, theirs.stretch)


def test_a_rectified_box_contains_all_that_it_must():
    lower = torch.tensor([[-2.0, -1.0, -1.0, 0.0, 1.0, 1e-8, 0.0]], dtype=torch.float64)
    upper = torch.tensor([[-1.0, 0.0, 3.0, 3.0, 3.0, 1.0, 0.0]], dtype=torch.float64)
    empty = Box(lower[:0], lower[:0], sound=True)
    box = empty.between(lower, upper, lower[:0])
    ours, theirs = Rectifier(), nn.ReLU()
    result = rule_for(ours).interval(ours, box)
    assert (result.lower <= lower.relu()).all()
    assert (result.upper >= upper.relu()).all()
    assert result.positive
    assert (result.radius[0, [0, 6]] == 0).all()  # what is dead stays exactly zero, and rounds nothing behind it
    expected = rule_for(theirs).interval(theirs, box)
    torch.testing.assert_close(result.centre, expected.centre)
    torch.testing.assert_close(result.radius, expected.radius, atol=1e-12, rtol=1e-12)
    assert isinstance(rule_for(ours), ReLURule)


def test_a_box_that_rounding_moves_is_still_contained():
    """c + r is rounded; without room for that, its exact value would lie outside for many units."""
    torch.manual_seed(0)
    centre, radius = torch.randn(1, 2000, dtype=torch.float64), torch.rand(1, 2000, dtype=torch.float64)
    layer = Rectifier()
    result = rule_for(layer).interval(layer, Box(centre, radius, sound=True))
    for c, r, new_c, new_r in zip(
        *(x[0].tolist() for x in (centre, radius, result.centre, result.radius)), strict=True
    ):
        upper = max(Fraction(c) + Fraction(r), Fraction(0))
        assert Fraction(new_c) - Fraction(new_r) <= max(Fraction(c) - Fraction(r), Fraction(0))
        assert Fraction(new_c) + Fraction(new_r) >= upper


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_fixed_weights_are_those_of_the_layer(kind):
    layer = NegativeLinear(7)
    twin = FixedNegative.of(layer, kind)
    assert twin.weight.dtype == kind
    torch.testing.assert_close(twin.weight, -layer.log_weight.detach().to(kind).exp(), atol=0, rtol=0)
    assert "log_weight" not in dict(twin.named_parameters())
    assert type(rule_for(twin)) is type(rule_for(layer))
