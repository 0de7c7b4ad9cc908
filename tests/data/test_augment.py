import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import pad as zero_pad

from prood.data import Augment, generator
from prood.errors import ProodError


def pictures(count: int = 6, channels: int = 2, height: int = 9, width: int = 7) -> Tensor:
    return torch.rand(count, channels, height, width, generator=generator(0)) + 0.1


def blobs(size: int = 40) -> Tensor:
    """A smooth picture without symmetry, zero towards the border."""
    y, x = torch.meshgrid(torch.arange(size) - 19.5, torch.arange(size) - 19.5, indexing="ij")
    one = torch.exp(-((x - 6) ** 2 + (y + 2) ** 2) / 12) + 0.5 * torch.exp(-((x + 3) ** 2 + (y - 7) ** 2) / 20)
    return one[None, None]


def test_without_options_nothing_happens() -> None:
    augment = Augment()
    images = pictures()
    draws = augment.draw(6, generator(1))
    assert torch.equal(augment.apply(images, draws), images)
    assert torch.equal(draws, torch.tensor([0.0, 0, 0, 0, 1]).expand(6, 5))


@given(st.integers(0, 12), st.booleans(), st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
def test_moving_and_mirroring_are_slices_of_the_padded_image(
    pad: int, flip: bool, height: int, width: int, seed: int
) -> None:
    augment = Augment(pad=pad, flip=flip)
    images = pictures(8, 2, height, width)
    draws = augment.draw(8, generator(seed))
    for image, (row, column, mirror, *_), result in zip(images, draws, augment.apply(images, draws), strict=True):
        top, left = int(row) + pad, int(column) + pad
        expected = zero_pad(image, (pad, pad, pad, pad))[:, top : top + height, left : left + width]
        assert torch.equal(result, expected.flip(-1) if mirror else expected)


def test_draws_are_in_range_and_reach_it() -> None:
    draws = Augment(pad=3, flip=True, degrees=20, scale=0.25).draw(4000, generator(5))
    rows, columns, flips, degrees, zooms = draws.T
    for moves in (rows, columns):
        assert torch.bincount((moves + 3).long()).min() > 4000 / 7 * 0.8
        assert moves.unique().tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert flips.unique().tolist() == [0, 1]
    assert abs(flips.mean() - 0.5) < 0.05
    for values, low, high in ((degrees, -20, 20), (zooms, 0.75, 1.25)):
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high >= values.max() > high - 0.01 * (high - low)
        assert abs(values.mean() - (low + high) / 2) < 0.05 * (high - low)
    assert torch.corrcoef(draws.T).fill_diagonal_(0).abs().max() < 0.08


def test_switching_one_option_leaves_the_other_draws_alone() -> None:
    everything = Augment(pad=3, flip=True, degrees=20, scale=0.25).draw(50, generator(5))
    without = Augment(pad=3, degrees=20, scale=0.25).draw(50, generator(5))
    assert torch.equal(everything[:, [0, 1, 3, 4]], without[:, [0, 1, 3, 4]])
    assert without[:, 2].sum() == 0


@pytest.mark.parametrize("augment", [Augment(pad=2, flip=True), Augment(2, True, 25, 0.2)])
def test_a_row_depends_on_its_image_and_its_draw_alone(augment: Augment) -> None:
    images = pictures(13, 3, 12, 17)
    draws = augment.draw(13, generator(9))
    whole = augment.apply(images, draws)
    for i in range(13):
        assert torch.equal(augment.apply(images[i : i + 1], draws[i : i + 1])[0], whole[i])
    order = torch.randperm(13, generator=generator(1))
    assert torch.equal(augment.apply(images[order], draws[order]), whole[order])


def test_draws_stay_on_the_cpu_and_images_on_their_device() -> None:
    """The meta device computes nothing but refuses, like a GPU, to mix its tensors with those of the CPU."""
    augment = Augment(2, True, 25, 0.2)
    draws = augment.draw(6, generator(0))
    result = augment.apply(pictures().to("meta"), draws)
    assert (draws.device.type, result.device.type) == ("cpu", "meta")
    assert result.shape == pictures().shape


@pytest.mark.parametrize("degrees", [-30.0, -7.0, 12.0, 45.0, 90.0])
def test_turning_agrees_with_pillow_and_scipy(degrees: float) -> None:
    image = blobs()
    ours = Augment(degrees=90).apply(image, torch.tensor([[0, 0, 0, degrees, 1]]))[0, 0].numpy()
    grey = image[0, 0].numpy()
    pillow = np.asarray(Image.fromarray(grey).rotate(degrees, Image.Resampling.BILINEAR))
    scipy = ndimage.rotate(grey, degrees, reshape=False, order=1)
    assert np.abs(ours - pillow).max() < 1e-3
    assert np.abs(ours - scipy).max() < 1e-3
    assert np.abs(ours - grey).max() > 0.1


@pytest.mark.parametrize("zoom", [0.8, 1.25])
def test_zoom_above_one_enlarges(zoom: float) -> None:
    image = blobs()
    ours = Augment(scale=0.5).apply(image, torch.tensor([[0, 0, 0, 0, zoom]]))[0, 0].numpy()
    centre = 19.5
    theirs = ndimage.affine_transform(image[0, 0].numpy(), [1 / zoom] * 2, centre - centre / zoom, order=1)
    assert np.abs(ours - theirs).max() < 1e-3
    assert abs(ours.sum() / image.sum().item() - zoom**2) < 0.05


def test_an_image_that_is_no_square_is_turned_and_not_sheared() -> None:
    wide = torch.zeros(1, 1, 21, 41)
    wide[0, 0, 10, 12:29] = 1  # a bar of 17 pixels across the centre
    turned = Augment(degrees=90).apply(wide, torch.tensor([[0, 0, 0, 90, 1]]))
    expected = torch.zeros(1, 1, 21, 41)
    expected[0, 0, 2:19, 20] = 1
    assert (turned - expected).abs().max() < 1e-4


def test_what_turns_in_from_outside_is_zero() -> None:
    turned = Augment(degrees=45).apply(torch.ones(1, 1, 20, 20), torch.tensor([[0, 0, 0, 45, 1]]))
    assert turned[0, 0, 0, 0] == 0
    assert abs(turned[0, 0, 10, 10] - 1) < 1e-5


@pytest.mark.parametrize("options", [{"pad": -1}, {"degrees": -1}, {"degrees": 181}, {"scale": 1}, {"scale": -0.1}])
def test_refuses_options_that_make_no_sense(options: dict) -> None:
    with pytest.raises(ProodError, match="choose"):
        Augment(**options)


def test_refuses_draws_and_images_that_do_not_fit() -> None:
    augment = Augment(pad=1)
    draws = augment.draw(6, generator(0))
    with pytest.raises(ProodError, match="6 × 5 draws"):
        augment.apply(pictures(6), draws[:5])
    with pytest.raises(ProodError, match="float images NCHW"):
        augment.apply(torch.zeros(6, 1, 4, 4, dtype=torch.uint8), draws)
    with pytest.raises(ProodError, match="float images NCHW"):
        augment.apply(torch.zeros(6, 4, 4), draws)
