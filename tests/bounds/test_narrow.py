"""The first convolution as a compiler on a GPU is given it, a product of matrices."""

from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from prood.bounds import Box, affine, interval


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, (2, 0)])
def test_a_narrow_convolution_is_the_layers_own(channels: int, stride: int, padding: int | tuple[int, int]) -> None:
    """The rule of a layer, with a product of matrices as a compiler is given it: boxes, points and gradients."""
    torch.manual_seed(0)
    layer = nn.Conv2d(channels, 5, 3, stride, padding).double()
    box = Box.ball(torch.rand(2, channels, 9, 8).double(), 0.1, points=torch.rand(3, channels, 9, 8).double())

    def through() -> tuple[list[Tensor], list[Tensor]]:
        made = interval(nn.Sequential(layer), box)
        loss = (made.centre**2).sum() + made.radius.cos().sum()
        return [made.centre, made.radius], list(torch.autograd.grad(loss, list(layer.parameters())))

    expected = through()
    with mock.patch.object(affine, "_is_narrow", return_value=True) as asked:
        found = through()
    assert asked.called
    assert found[0][0].is_contiguous(memory_format=torch.channels_last)
    for ours, theirs in zip([*found[0], *found[1]], [*expected[0], *expected[1]], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_without_a_bias() -> None:
    layer = nn.Conv2d(3, 4, 3, bias=False).double()
    box = Box.ball(torch.rand(2, 3, 5, 5).double(), 0.1)
    expected = interval(nn.Sequential(layer), box)
    with mock.patch.object(affine, "_is_narrow", return_value=True):
        torch.testing.assert_close(interval(nn.Sequential(layer), box).centre, expected.centre)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 4, 3),  # too many inputs
        nn.Conv2d(2, 4, 3, groups=2),
        nn.Conv2d(2, 4, 3, dilation=2),
        nn.Conv2d(2, 4, 3, padding="same"),
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
    ],
)
def test_other_convolutions_are_left_to_the_library(layer: nn.Conv2d) -> None:
    images = mock.Mock(is_cuda=True, requires_grad=False)
    with mock.patch.object(torch.compiler, "is_compiling", return_value=True):
        assert affine._is_narrow(nn.Conv2d(3, 4, 3, padding=1), images)
        assert not affine._is_narrow(layer, images)
        assert not affine._is_narrow(nn.Conv2d(3, 4, 3), mock.Mock(is_cuda=True, requires_grad=True))
        assert not affine._is_narrow(nn.Conv2d(3, 4, 3), torch.zeros(1, 3, 5, 5))
    assert not affine._is_narrow(nn.Conv2d(3, 4, 3), images)
