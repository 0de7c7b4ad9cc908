"""The bilinear turn and view; what moves whole pixels is tested in test_augment.py and test_operations.py."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import interpolate

from prood.data import Augment
from prood.data.augment.geometry import turn, view


def turned(image: Tensor, degrees: float, zoom: float) -> Tensor:
    """`Augment`'s turn of a float image, by way of a draw."""
    augment = Augment(degrees=180, scale=0.9)
    draw = torch.tensor([[0] * 9 + [degrees, zoom, 1, 0, 0] + [1, 0, 0, 1, 1, 1]], dtype=torch.float64)
    return turn(image, augment.plan(draw, *image.shape[2:])[:, -11:-9])


def blobs(size: int = 40) -> Tensor:
    """A smooth picture without symmetry, zero towards the border."""
    y, x = torch.meshgrid(torch.arange(size) - 19.5, torch.arange(size) - 19.5, indexing="ij")
    one = torch.exp(-((x - 6) ** 2 + (y + 2) ** 2) / 12) + 0.5 * torch.exp(-((x + 3) ** 2 + (y - 7) ** 2) / 20)
    return one[None, None]


@pytest.mark.parametrize("degrees", [-30.0, -7.0, 12.0, 45.0, 90.0])
def test_turning_agrees_with_pillow_and_scipy(degrees: float) -> None:
    image = blobs()
    ours = turned(image, degrees, 1)[0, 0].numpy()
    grey = image[0, 0].numpy()
    pillow = np.asarray(Image.fromarray(grey).rotate(degrees, Image.Resampling.BILINEAR))
    scipy = ndimage.rotate(grey, degrees, reshape=False, order=1)
    assert np.abs(ours - pillow).max() < 1e-3
    assert np.abs(ours - scipy).max() < 1e-3
    assert np.abs(ours - grey).max() > 0.1


@pytest.mark.parametrize("zoom", [0.8, 1.25])
def test_zoom_above_one_enlarges(zoom: float) -> None:
    image = blobs()
    ours = turned(image, 0, zoom)[0, 0].numpy()
    centre = 19.5
    theirs = ndimage.affine_transform(image[0, 0].numpy(), [1 / zoom] * 2, centre - centre / zoom, order=1)
    assert np.abs(ours - theirs).max() < 1e-3
    assert abs(ours.sum() / image.sum().item() - zoom**2) < 0.05


def test_an_image_that_is_no_square_is_turned_and_not_sheared() -> None:
    wide = torch.zeros(1, 1, 21, 41)
    wide[0, 0, 10, 12:29] = 1  # a bar of 17 pixels across the centre
    result = turned(wide, 90, 1)
    expected = torch.zeros(1, 1, 21, 41)
    expected[0, 0, 2:19, 20] = 1
    assert (result - expected).abs().max() < 1e-4


def test_what_turns_in_from_outside_is_zero() -> None:
    result = turned(torch.ones(1, 1, 20, 20), 45, 1)
    assert result[0, 0, 0, 0] == 0
    assert abs(result[0, 0, 10, 10] - 1) < 1e-5


@pytest.mark.parametrize(("side", "down", "right"), [(0.125, 0, 1), (0.5, 0.2, 0.7), (1.5, 1, 0), (4, 0.4, 0.9)])
def test_a_view_agrees_with_scipy(side: float, down: float, right: float) -> None:
    image = torch.rand(1, 2, 24, 18, generator=torch.Generator().manual_seed(0))
    ours = view(image, torch.tensor([[side, down, right]]))
    rows = (np.arange(24) + 0.5) * side + (1 - side) * down * 24 - 0.5
    columns = (np.arange(18) + 0.5) * side + (1 - side) * right * 18 - 0.5
    grid = np.meshgrid(rows, columns, indexing="ij")
    for channel in range(2):
        theirs = ndimage.map_coordinates(image[0, channel].numpy(), grid, order=1, mode="reflect")
        assert np.abs(ours[0, channel].numpy() - theirs).max() < 1e-5


def test_a_view_of_half_the_sides_is_the_quarter_twice_as_big() -> None:
    image = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    ours = view(image, torch.tensor([[0.5, 1, 0]]))
    theirs = interpolate(image[:, :, 8:, :8], scale_factor=2, mode="bilinear")
    assert (ours - theirs)[:, :, 1:, :15].abs().max() < 1e-6  # at its inner borders the quarter looks over the edge


def test_seen_from_three_times_as_far_the_mirror_images_stand_around() -> None:
    image = torch.rand(1, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    seen = view(image, torch.tensor([[3, 0.5, 0.5]]))
    small = image[:, :, 1::3, 1::3]  # every third pixel, exactly: so is a bilinear view without a filter
    assert (seen[:, :, 3:6, 3:6] - small).abs().max() < 1e-5
    assert (seen[:, :, 3:6, :3] - small.flip(3)).abs().max() < 1e-5
    assert (seen[:, :, 6:, 6:] - small.flip(2, 3)).abs().max() < 1e-5


def test_of_an_image_at_its_own_scale_every_bit_stays() -> None:
    images = torch.rand(3, 3, 11, 13, generator=torch.Generator().manual_seed(0))
    result = view(images, torch.tensor([[1, 0.3, 0.9], [0.4, 0.5, 0.5], [1, 0, 0]]))
    assert torch.equal(result[::2], images[::2])
    assert not torch.equal(result[1], images[1])
