import math

import pytest
import torch
from torch import Tensor

from prood.bounds.radius import bound_curve, certified_radius
from prood.errors import BadValue

# Image n is the number n; its bound rises linearly from n.
IMAGES = torch.tensor([[-1.0], [-0.3], [0.0], [0.5], [-50.0]])


def linear(images: Tensor, eps: Tensor) -> Tensor:
    return images[:, 0].double() + 2 * eps


def test_it_is_where_the_bound_meets_the_threshold() -> None:
    radius = certified_radius(linear, IMAGES, 0.0, steps=30)
    assert radius[:2].tolist() == pytest.approx([0.5, 0.15], abs=1e-8)
    assert radius.dtype == torch.float64
    # Never beyond what was proven.
    assert (linear(IMAGES, radius)[:2] < 0).all()


def test_what_is_not_rejected_has_none_and_what_always_is_has_the_largest() -> None:
    radius = certified_radius(linear, IMAGES, 0.0)
    assert math.isnan(radius[2])  # the bound equals the threshold
    assert math.isnan(radius[3])
    assert radius[4] == 1
    assert certified_radius(linear, IMAGES, 0.0, largest=3.0)[4] == 3


def test_only_open_images_are_bounded_again() -> None:
    asked = []

    def counting(images: Tensor, eps: Tensor) -> Tensor:
        asked.append(len(images))
        return linear(images, eps)

    certified_radius(counting, IMAGES, 0.0, steps=4)
    assert asked == [5, 5, 2, 2, 2, 2]
    asked.clear()
    certified_radius(counting, IMAGES[3:], 0.0, steps=4)
    assert asked == [2, 2]


def test_a_bound_that_is_not_monotone_still_gives_a_proven_radius() -> None:
    def bumpy(images: Tensor, eps: Tensor) -> Tensor:
        return linear(images, eps) + 0.2 * torch.sin(60 * eps)

    radius = certified_radius(bumpy, IMAGES[:2], 0.0)
    assert (bumpy(IMAGES[:2], radius) < 0).all()


def test_no_images_have_no_radii_and_nonsense_is_refused() -> None:
    assert certified_radius(linear, IMAGES[:0], 0.0).shape == (0,)
    for wrong in ({"steps": 0}, {"largest": 0.0}, {"largest": math.nan}, {"largest": math.inf}):
        with pytest.raises(BadValue):
            certified_radius(linear, IMAGES, 0.0, **wrong)
    with pytest.raises(BadValue, match="NaN"):
        certified_radius(linear, IMAGES, math.nan)


def test_a_curve_has_the_bounds_and_no_dents() -> None:
    def dented(images: Tensor, eps: Tensor) -> Tensor:
        return torch.where(eps == 0.2, 9.0, linear(images, eps))

    radii = [0.3, 0.0, 0.2, 0.1]
    torch.testing.assert_close(
        bound_curve(linear, IMAGES, radii), IMAGES.double() + 2 * torch.tensor(radii, dtype=torch.float64)
    )
    asked: list[float] = []

    def noting(images: Tensor, eps: Tensor) -> Tensor:
        asked.extend(eps[:1].tolist())
        return linear(images, eps)

    bound_curve(noting, IMAGES, [0.7, 0.1])
    assert asked == [0.7, 0.1]  # 0.7 in float32 is a smaller number
    curve = bound_curve(dented, IMAGES, radii)
    # What is proven at 0.3 holds at 0.2.
    assert torch.equal(curve[:, 2], curve[:, 0])
    with pytest.raises(BadValue):
        bound_curve(linear, IMAGES, [])
