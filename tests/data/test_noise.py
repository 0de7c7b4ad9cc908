import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from prood.data import smooth_noise, uniform_noise
from prood.data.noise import gaussian_filter
from prood.errors import BadValue


@pytest.mark.parametrize("make", [uniform_noise, smooth_noise])
def test_a_small_set_is_the_beginning_of_a_bigger_one(make) -> None:
    small, big = make(5, (3, 16, 12), seed=7), make(40, (3, 16, 12), seed=7)
    assert torch.equal(small.images, big.images[:5])
    assert small.shape == (3, 16, 12)
    assert len(torch.unique(big.images.flatten(1), dim=0)) == 40
    assert not torch.equal(small.images, make(5, (3, 16, 12), seed=8).images)


def test_uniform_noise_is_uniform() -> None:
    images = uniform_noise(100, (3, 32, 32), seed=0).images
    counts = torch.bincount(images.flatten().int(), minlength=256).double()
    expected = images.numel() / 256
    chi2 = ((counts - expected) ** 2 / expected).sum().item()
    assert 150 < chi2 < 370  # 255 degrees of freedom; both ends lie beyond four standard deviations


def test_smooth_noise_fills_the_range_over_all_channels_together() -> None:
    images = smooth_noise(50, (3, 20, 20), seed=0).images
    flat = images.flatten(1)
    assert (flat.amin(1) == 0).all()
    assert (flat.amax(1) == 255).all()
    ranges = images.flatten(2).int()
    spans = ranges.amax(2) - ranges.amin(2)
    assert (spans < 255).any(dim=1).float().mean() > 0.8  # a channel of its own would always span 255


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(1.0, 2.5), st.integers(0, 99))
def test_the_filter_agrees_with_scipy(height: int, width: int, sigma: float, seed: int) -> None:
    images = np.random.default_rng(seed).random((2, height, width))
    ours = gaussian_filter(torch.from_numpy(images), sigma).numpy()
    theirs = np.stack([ndimage.gaussian_filter(x, sigma, mode="nearest", truncate=4) for x in images])
    assert np.abs(ours - theirs).max() < 1e-12


@pytest.mark.slow
def test_widths_are_spread_over_the_papers_range() -> None:
    """σ from the correlation of neighbours: it is exp(−1 / 4σ²) for white noise blurred by σ, away from the border.

    Many channels, because they share the width of their image and one alone measures it badly.
    """
    images = smooth_noise(100, (24, 72, 72), seed=1).floats()[:, :, 12:-12, 12:-12].double()
    centred = images - images.mean(dim=(1, 2, 3), keepdim=True)
    pairs = (centred[..., 1:] * centred[..., :-1]).mean(dim=(1, 2, 3))
    sigmas = torch.sqrt(-1 / (4 * torch.log(pairs / centred.square().mean(dim=(1, 2, 3)))))
    assert 0.95 < sigmas.min() < 1.1
    assert 2.35 < sigmas.max() < 2.6
    assert abs(sigmas.mean() - 1.75) < 0.15


@pytest.mark.parametrize("make", [uniform_noise, smooth_noise])
def test_refuses_no_images_and_other_shapes(make) -> None:
    with pytest.raises(BadValue):
        make(0, (1, 8, 8), 0)
    for shape in [(8, 8), (1, 0, 8), (2, 1, 8, 8)]:
        with pytest.raises(BadValue):
            make(2, shape, 0)


def test_a_single_pixel_has_no_range() -> None:
    with pytest.raises(BadValue):
        smooth_noise(2, (1, 1, 1), 0)
    assert smooth_noise(2, (1, 1, 2), 0).images.flatten(1).sum(1).tolist() == [255, 255]


@pytest.mark.parametrize("make", [uniform_noise, smooth_noise])
def test_more_than_memory_holds_is_refused_at_once(make) -> None:
    with pytest.raises(BadValue, match=r"10,000,000,000.*2,796"):
        make(10**10, (3, 32, 32), 0)
