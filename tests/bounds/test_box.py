from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prood.bounds import Box
from prood.errors import BadValue

SEEDS = st.integers(0, 2**20)


@settings(max_examples=60)
@given(SEEDS, st.floats(0, 3), st.sampled_from([None, (0.0, 1.0), (-0.5, 0.25)]))
def test_a_ball_holds_its_points_and_no_others(seed: int, eps: float, clip: tuple[float, float] | None) -> None:
    torch.manual_seed(seed)
    images = torch.rand(3, 2, 4, dtype=torch.float64)
    box = Box.ball(images, eps, clip=clip)
    low, high = clip or (-torch.inf, torch.inf)
    torch.testing.assert_close(box.lower, (images - eps).clamp(low, high), rtol=0, atol=1e-14)
    torch.testing.assert_close(box.upper, (images + eps).clamp(low, high), rtol=0, atol=1e-14)
    assert (box.radius >= 0).all()
    assert box.n_points == 0


def test_eps_zero_is_the_image_itself() -> None:
    images = torch.rand(5, 1, 3, 3)
    box = Box.ball(images, 0.0)
    assert torch.equal(box.centre, images)
    assert not box.radius.any()


def test_images_outside_the_clip_are_cut_to_it() -> None:
    """No image of the ball lies inside, so any bound is true; the box shrinks to the nearest face and stays finite."""
    box = Box.ball(torch.tensor([[-3.0, 0.5, 7.0]]), 0.25)
    assert box.lower.tolist() == [[0.0, 0.25, 1.0]]
    assert box.upper.tolist() == [[0.0, 0.75, 1.0]]
    assert Box.ball(torch.tensor([[-3.0, 7.0]]), 0.25, clip=None).lower.tolist() == [[-3.25, 6.75]]


def test_an_infinite_radius_is_the_whole_cube() -> None:
    box = Box.ball(torch.rand(1, 4), torch.inf)
    assert torch.equal(box.lower, torch.zeros(1, 4))
    assert torch.equal(box.upper, torch.ones(1, 4))


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 1, 1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_eps_per_image(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    images = torch.rand(3, 2, 4, 4)
    eps = torch.tensor([0.0, 0.1, 0.5], dtype=dtype)
    box = Box.ball(images, eps.reshape(shape))
    assert box.radius.dtype == torch.float32
    for row in range(3):
        alone = Box.ball(images[row : row + 1], eps[row].item())
        torch.testing.assert_close(box.lower[row], alone.lower[0])
        torch.testing.assert_close(box.upper[row], alone.upper[0])


@pytest.mark.parametrize("kind", [list, np.array])
def test_a_list_of_radii_is_one_per_image(kind: Callable[[list[float]], Any]) -> None:
    images, radii = torch.rand(3, 1, 3, 3), [0.01, 0.2, 0.4]  # as many images as columns
    for ball in (Box.ball, Box.sound_ball):
        given, wanted = ball(images, kind(radii)), ball(images, torch.tensor(radii, dtype=torch.float64))
        assert given.lower.equal(wanted.lower)
        assert given.upper.equal(wanted.upper)


@pytest.mark.parametrize("eps", [torch.tensor(0.1), torch.tensor(0.1, dtype=torch.float64), torch.tensor([0.1])])
def test_eps_may_be_a_tensor_of_one_number(eps: torch.Tensor) -> None:
    images = torch.rand(3, 4)
    box = Box.ball(images, eps)
    assert box.centre.dtype == torch.float32
    torch.testing.assert_close(box.upper, Box.ball(images, 0.1).upper)


@pytest.mark.parametrize(("images", "eps"), [(1, 3), (3, 2), (2, 3)])
def test_eps_of_another_length_is_refused(images: int, eps: int) -> None:
    with pytest.raises(BadValue, match=rf"{eps}.*{images}"):
        Box.ball(torch.rand(images, 4), torch.full((eps,), 0.1))


def test_points_come_first_and_have_no_radius() -> None:
    points, images = torch.rand(2, 3), torch.rand(4, 3)
    box = Box.ball(images, 0.1, points=points)
    alone = Box.ball(images, 0.1)
    assert box.n_points == 2
    assert torch.equal(box.points, points)
    for name in ("middle", "lower", "upper", "radius"):
        assert torch.equal(getattr(box, name), getattr(alone, name))


@settings(max_examples=30)
@given(SEEDS, st.integers(0, 3))
def test_monotone_functions_map_ends_to_ends(seed: int, points: int) -> None:
    torch.manual_seed(seed)
    box = Box(torch.randn(points + 2, 5, dtype=torch.float64), torch.rand(2, 5, dtype=torch.float64))
    image = box.monotone(torch.atan)
    assert image.n_points == points
    assert torch.equal(image.points, box.points.atan())
    torch.testing.assert_close(image.lower, box.lower.atan())
    torch.testing.assert_close(image.upper, box.upper.atan())
    assert (image.radius >= 0).all()
