from dataclasses import replace
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad as zero_pad

from prood.data import Augment, generator
from prood.errors import BadValue, Mismatch

ALL = Augment(pad=3, flip=True, autoaugment=True, cutout=5, degrees=20, scale=0.25, rescaled=0.8)
ALL = replace(ALL, crop=6, resized=0.5, colour=0.3)


def pictures(count: int = 6, channels: int = 3, height: int = 9, width: int = 7) -> Tensor:
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator(0))


def test_without_options_bytes_become_floats() -> None:
    augment, images = Augment(), pictures()
    draws = augment.draw(6, generator(1))
    result = augment.apply(images, draws)
    assert result.dtype == torch.float32
    assert torch.equal(result, images.float() / 255)
    assert torch.equal(draws[:, [0, 1, 2, 3, 4, 5, 6, 9, 10]], torch.tensor([0.0] * 8 + [1]).double().expand(6, 9))


@given(st.integers(0, 12), st.booleans(), st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
def test_moving_and_mirroring_are_slices_of_the_padded_image(
    pad: int, flip: bool, height: int, width: int, seed: int
) -> None:
    augment = Augment(pad=pad, flip=flip)
    images = pictures(8, 3, height, width)
    draws = augment.draw(8, generator(seed))
    for image, (row, column, mirror, *_), result in zip(images, draws, augment.apply(images, draws), strict=True):
        top, left = int(row) + pad, int(column) + pad
        expected = zero_pad(image, (pad, pad, pad, pad))[:, top : top + height, left : left + width].float() / 255
        assert torch.equal(result, expected.flip(-1) if mirror else expected)


@given(st.integers(0, 12), st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
def test_a_reflected_border_continues_the_image_like_a_mirror(pad: int, height: int, width: int, seed: int) -> None:
    augment = Augment(pad=pad, flip=True, border="reflect")
    images = pictures(8, 3, height, width)
    draws = augment.draw(8, generator(seed))
    for image, (row, column, mirror, *_), result in zip(images, draws, augment.apply(images, draws), strict=True):
        framed = np.pad(image.numpy(), ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
        top, left = int(row) + pad, int(column) + pad
        expected = torch.from_numpy(framed[:, top : top + height, left : left + width]).float() / 255
        assert torch.equal(result, expected.flip(-1) if mirror else expected)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 15, 22)])
@pytest.mark.parametrize("options", [{"autoaugment": True}, {"cutout": 7}, {"cutout": 4}, {"cutout": 90}, {}])
def test_the_whole_way_is_that_of_pillow_byte_for_byte(
    options: dict, shape: tuple[int, int, int], pillow: SimpleNamespace
) -> None:
    augment = Augment(pad=4, flip=True, **options)
    images = pillow.images(80, *shape)
    draws = augment.draw(len(images), generator(2))
    expected = pillow.augment(images, draws, pad=4, cutout=augment.cutout).float() / 255
    assert torch.equal(augment.apply(images, draws), expected)


def test_a_hole_is_grey_as_big_as_it_should_be_and_anywhere() -> None:
    images = torch.zeros(2000, 1, 10, 12, dtype=torch.uint8)
    augment = Augment(cutout=4)
    result = augment.apply(images, augment.draw(2000, generator(0)))
    assert result.unique().tolist() == [0, torch.tensor(128 / 255).item()]
    sizes = (result > 0).sum(dim=(1, 2, 3))
    assert (sizes.min(), sizes.max()) == (4, 16)  # a corner, and the whole square
    often = (result > 0).float().mean(dim=0)[0]
    assert often.min() > 0.02  # 4 of 120 centres, at the corner that is reached least
    assert often[4:6, 4:8].min() > 0.1  # 16 of 120


def test_draws_are_in_range_and_reach_it() -> None:
    draws = ALL.draw(4000, generator(5), outside=True)
    rows, columns, flips, *_, down, right, degrees, zooms, side, lower, further = draws[:, :14].T
    shown, top, left, *colours = draws[:, 14:].T
    close, far = side[side < 1], side[side > 1]
    assert abs(len(close) / 4000 - 0.4) < 0.04
    assert abs(len(far) / 4000 - 0.4) < 0.04
    for moves in (rows, columns):
        assert torch.bincount((moves + 3).long()).min() > 4000 / 7 * 0.8
        assert moves.unique().tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert flips.unique().tolist() == [0, 1]
    assert abs(flips.mean() - 0.5) < 0.05
    places = [(values, 0, 1) for values in (down, right, lower, further, top, left)]
    places += [(shown, 0.5, 1), *((values, 0.7, 1.3) for values in colours)]
    for values, low, high in ((degrees, -20, 20), (zooms, 0.75, 1.25), (close, 1 / 8, 1 / 2), (far, 3 / 2, 4), *places):
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high >= values.max() > high - 0.01 * (high - low)
        assert abs(values.mean() - (low + high) / 2) < 0.05 * (high - low)
    free = draws[:, [0, 1, 2, 3, *range(7, 20)]]
    assert torch.corrcoef(free.T).fill_diagonal_(0).abs().max() < 0.08


@pytest.mark.parametrize(
    ("option", "columns"),
    [
        ({"pad": 0}, [0, 1]),
        ({"flip": False}, [2]),
        ({"autoaugment": False}, [3, 4, 5, 6]),
        ({"cutout": 0}, []),
        ({"degrees": 0}, [9]),
        ({"scale": 0}, [10]),
        ({"rescaled": 0}, [11]),
        ({"resized": 0}, [14]),
        ({"colour": 0}, [17, 18, 19]),
    ],
)
def test_switching_one_option_leaves_the_other_draws_alone(option: dict, columns: list[int]) -> None:
    everything = ALL.draw(50, generator(5), outside=True)
    without = replace(ALL, **option).draw(50, generator(5), outside=True)
    others = [column for column in range(20) if column not in columns]
    assert torch.equal(everything[:, others], without[:, others])
    assert all(not torch.equal(everything[:, column], without[:, column]) for column in columns)


def test_only_the_out_distribution_is_shown_at_other_scales() -> None:
    augment, images = Augment(rescaled=1), pictures(40)
    inside, outside = (augment.draw(40, generator(5), outside=outside) for outside in (False, True))
    assert torch.equal(augment.apply(images, inside), images.float() / 255)
    result = augment.apply(images, outside)
    assert (result != images / 255).flatten(1).any(1).all()
    # Neighbours in what is enlarged at least twice are alike, which in noise they are not.
    contrast = [batch[outside[:, 11] < 1].diff(dim=3).abs().mean() for batch in (result, images / 255)]
    assert contrast[0] < 0.6 * contrast[1]
    others = [column for column in range(20) if column != 11]
    assert torch.equal(inside[:, others], outside[:, others])


@pytest.mark.parametrize("augment", [Augment(pad=2, flip=True), Augment(2, True, True, 4), ALL])
def test_a_row_depends_on_its_image_and_its_draw_alone(augment: Augment) -> None:
    images = pictures(53, 3, 12, 17)
    before = images.clone()
    draws = augment.draw(53, generator(9), outside=True)
    whole = augment.apply(images, draws)
    for i in range(53):
        assert torch.equal(augment.apply(images[i : i + 1], draws[i : i + 1])[0], whole[i])
    order = torch.randperm(53, generator=generator(1))
    assert torch.equal(augment.apply(images[order], draws[order]), whole[order])
    for rank in range(2):
        assert torch.equal(augment.apply(images[rank::2], draws[rank::2]), whole[rank::2])
    assert torch.equal(images, before)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_way_of_a_gpu_has_the_same_result(channels: int) -> None:
    images = pictures(200, channels, 20, 18)
    draws = ALL.draw(200, generator(3), outside=True)
    assert torch.equal(ALL.on_device(images, ALL.plan(draws, 20, 18)), ALL.apply(images, draws))


@pytest.mark.parametrize("border", ["zeros", "reflect"])
@pytest.mark.parametrize("size", [(20, 18), (5, 9), (1, 3)])
def test_a_compiler_moves_pixels_where_a_cpu_moves_lines(
    border: Literal["zeros", "reflect"], size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = pictures(300, 3, *size)
    augment = Augment(pad=7, flip=True, border=border)
    plan = augment.plan(augment.draw(300, generator(4)), *size)
    expected = augment.on_device(images, plan)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(augment.on_device(images, plan), expected)
    assert not torch.equal(expected, images.float() / 255)


@pytest.mark.slow
def test_draws_stay_on_the_cpu_and_images_on_their_device() -> None:
    """The meta device computes nothing but refuses, like a GPU, to mix its tensors with those of the CPU."""
    draws = ALL.draw(6, generator(0))
    result = ALL.apply(pictures().to("meta"), draws)
    assert (draws.device.type, draws.dtype, result.device.type) == ("cpu", torch.float64, "meta")
    assert result.shape == (6, 3, 6, 6)


def test_a_crop_is_a_part_of_the_image_and_every_part_comes() -> None:
    augment, images = Augment(crop=6), pictures(300)
    found = set()
    draws = augment.draw(300, generator(2))
    for image, draw, result in zip(images, draws, augment.apply(images, draws), strict=True):
        top, left = int(draw[15] * 4), int(draw[16] * 2)  # of 9×7 pixels
        found.add((top, left))
        assert torch.allclose(result, image[:, top : top + 6, left : left + 6] / 255, atol=1e-6)
    assert len(found) == 8
    assert augment.shape((3, 9, 7)) == (3, 6, 6)


def test_a_resized_crop_shows_its_part_at_the_side_of_the_network() -> None:
    """A ramp over the image is a ramp over the crop, between the values at the ends of the part."""
    ramp = torch.linspace(0, 255, 64).round().to(torch.uint8).expand(40, 1, 64, 64)
    augment = Augment(crop=56, resized=0.75)
    draws = augment.draw(40, generator(3))
    result = augment.apply(ramp, draws)
    assert result.shape == (40, 1, 56, 56)
    side = 64 * draws[:, 14]
    middle = (64 - side) * draws[:, 16] + side / 2  # in pixels from the left edge
    assert torch.allclose(result.mean((1, 2, 3)).double() * 63 + 0.5, middle, atol=0.3)
    slopes = (result[..., 40] - result[..., 15]).mean((1, 2)).double() * 63 / 25 * 56
    assert torch.allclose(slopes, side, rtol=0.05)
    assert side.min() < 24
    assert side.max() > 56
    assert Augment(crop=128, resized=0.1).shape((3, 64, 64)) == (3, 128, 128)
    with pytest.raises(BadValue, match="at most 64"):
        Augment(crop=65).shape((3, 64, 80))


def test_colours_are_those_of_brightness_contrast_and_saturation() -> None:
    augment, images = Augment(colour=0.4), pictures(50)
    draws = augment.draw(50, generator(4))
    result = augment.apply(images, draws)
    weights = np.array([0.299, 0.587, 0.114])[:, None, None]
    for image, draw, changed in zip(images.double().numpy() / 255, draws.numpy(), result.numpy(), strict=True):
        brightness, contrast, saturation = draw[17:]
        bright = np.clip(image * brightness, 0, 1)
        mean = (bright * weights).sum(0).mean()
        contrasted = np.clip(mean + contrast * (bright - mean), 0, 1)
        grey = (contrasted * weights).sum(0)
        assert np.allclose(changed, np.clip(grey + saturation * (contrasted - grey), 0, 1), atol=1e-5)
    grey = pictures(5, 1)
    assert augment.apply(grey, augment.draw(5, generator(4))).shape == (5, 1, 9, 7)


def test_a_network_can_be_trained_on_the_result() -> None:
    images = Augment(autoaugment=True).apply(pictures(), Augment(autoaugment=True).draw(6, generator(0)))
    weight = torch.ones(7, requires_grad=True)
    (images * weight).sum().backward()
    assert torch.allclose(weight.grad, images.sum(dim=(0, 1, 2)))


@pytest.mark.parametrize(
    "options",
    [
        *({"pad": -1}, {"pad": 10**400}, {"border": "grey"}, {"cutout": -1}, {"cutout": 10**400}),
        *({"degrees": -1}, {"degrees": 181}),
        *({"scale": 1}, {"scale": -0.1}, {"rescaled": -0.1}, {"rescaled": 1.1}),
        *({"crop": -1}, {"crop": 5000}, {"crop": 6, "resized": 1}, {"resized": 0.5}, {"colour": 1}, {"colour": -0.1}),
    ],
)
def test_refuses_options_that_make_no_sense(options: dict) -> None:
    with pytest.raises(BadValue):
        Augment(**options)


def test_refuses_draws_and_images_that_do_not_fit() -> None:
    augment = Augment(pad=1)
    draws = augment.draw(6, generator(0))
    with pytest.raises(Mismatch, match="20"):
        augment.apply(pictures(6), draws[:5])
    for images in (torch.zeros(6, 1, 4, 4), pictures()[:, 0], pictures(6, 2)):
        with pytest.raises(BadValue, match=r"uint8.*NCHW"):
            augment.apply(images, draws)
