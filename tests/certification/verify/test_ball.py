"""The ball: what it contains is exact, and no point of it beats the maximum of a plane."""

import numpy as np
import pytest

from prood.certification.verify.ball import Ball

NORMS = ("linf", "l2", "l1")


def sampled(ball: Ball, rng: np.random.Generator, count: int = 300) -> list[np.ndarray]:
    """Float32 points of the ball, many of them on its border."""
    points = []
    for _ in range(count):
        direction = rng.normal(size=ball.image.shape) * (rng.random(ball.image.shape) < rng.random())
        if ball.norm == "linf":
            moved = ball.eps * np.sign(direction)
        else:
            power = 2 if ball.norm == "l2" else 1
            moved = ball.eps * direction / max((np.abs(direction) ** power).sum() ** (1 / power), 1e-30)
        point = ball.inside(ball.image + moved)
        if point is not None:
            points.append(point)
    return points


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.1, 0.7, 3.0])
def test_no_point_is_above_the_maximum_of_a_plane(norm, eps):
    rng = np.random.default_rng(1)
    image = np.round(rng.random((1, 4, 4)) * 255).astype(np.float32) / np.float32(255)
    image[0, 0, :2] = 0, 1
    ball = Ball(image, norm, eps)
    slopes = rng.normal(size=(20, 1, 4, 4)) * 10.0 ** rng.integers(-3, 3, (20, 1, 1, 1))
    most = ball.maximum(slopes)
    points = sampled(ball, rng)
    assert len(points) > 200
    for point in [*points, *[ball.inside(ball.furthest(slope)) for slope in slopes]]:
        assert ball.contains(point)
        assert ((slopes * point).sum((1, 2, 3)) <= most).all()
    # And the maximum is reached: the planes' own highest points come close.
    for slope, high in zip(slopes, most, strict=True):
        reached = (slope * ball.inside(ball.furthest(slope))).sum()
        assert high - reached <= 0.02 * np.abs(slope).sum() * min(eps, 1) + 1e-5 * np.abs(slope).sum()


def test_what_it_contains_is_exact():
    image = np.full((1, 1, 2), np.float32(0.5))
    for eps in (0.1, float(np.float32(0.1))):
        ball = Ball(image, "linf", eps)
        border = np.float32(0.5 + eps)
        while float(border) - 0.5 > eps:
            border = np.nextafter(border, np.float32(0))
        point = image.copy()
        point[0, 0, 0] = border
        assert ball.contains(point)
        point[0, 0, 0] = np.nextafter(border, np.float32(1))
        assert not ball.contains(point)
    assert not Ball(image, "linf", 1.0).contains(np.full((1, 1, 2), np.float32(1.0001)))
    # 3-4-5: on the border of the ℓ2 ball, exactly.
    moved = np.array([[[0.5 + 0.375, 0.5 - 0.5]]], np.float32)
    assert Ball(image, "l2", 0.625).contains(moved)
    assert not Ball(image, "l2", np.nextafter(0.625, 0)).contains(moved)
    assert Ball(image, "l1", 0.875).contains(moved)
    assert not Ball(image, "l1", np.nextafter(0.875, 0)).contains(moved)


def test_the_ball_near_the_edge_of_the_images_is_smaller_than_its_box_and_its_norm():
    image = np.zeros((1, 1, 3), np.float32)
    slope = np.array([[[[-5.0, 1.0, 1.0]]]])
    assert Ball(image, "l2", 0.5).maximum(slope)[0] == pytest.approx(0.5 * np.sqrt(2), rel=1e-6)
    assert Ball(image, "l1", 1.5).maximum(np.abs(slope))[0] == pytest.approx(5.5, rel=1e-6)
