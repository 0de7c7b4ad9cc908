"""The ball around an image inside [0, 1]^d: its box, the maximum of a plane on it, and whether it holds a point."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from prood.certification.verify.exact import MORE, Array, down, slack, up


@dataclass(frozen=True, eq=False)
class Ball:
    """All u in [0, 1]^d with ‖u − x‖ ≤ eps; the image is float32, and eps the number that its text means."""

    image: NDArray[np.float32]
    norm: str
    eps: float

    @property
    def centre(self) -> Array:
        return self.image.astype(np.float64)

    @property
    def box(self) -> tuple[Array, Array]:
        """A box around the ball."""
        return np.clip(down(self.centre - self.eps), 0, 1), np.clip(up(self.centre + self.eps), 0, 1)

    def maximum(self, slope: Array) -> Array:
        """≥ s·u for every u of the ball, for each row s of `slope`."""
        rows = slope.reshape(len(slope), -1)
        lower, upper = (side.ravel() for side in self.box)
        image, height = self.centre.ravel(), np.abs(rows)
        # s·u = s·x + s·(u − x), and s·(u − x) is at most the gain.
        reach = np.where(rows > 0, up(upper - image), up(image - lower))
        gain = MORE * (height * reach).sum(1)
        if self.norm == "l1":
            gain = np.minimum(gain, self._gain_l1(height, reach))
        elif self.norm == "l2":
            gain = np.minimum(gain, self._gain_l2(height, reach))
        own = MORE * slack(rows.shape[1]) * (height @ image)
        return up(up(rows @ image + own) + gain)

    def _gain_l1(self, height: Array, reach: Array) -> Array:
        """For every λ ≥ 0: Σ hᵢ|dᵢ| ≤ λ·eps + Σ max(hᵢ − λ, 0)·reachᵢ.

        The best λ is the height at which the reach of all that are higher sums up to eps.
        """
        order = np.argsort(-height, axis=1)
        used = np.take_along_axis(reach, order, 1).cumsum(1)
        index = np.minimum((used < self.eps).sum(1, keepdims=True), height.shape[1] - 1)
        multiplier = np.take_along_axis(np.take_along_axis(height, order, 1), index, 1)
        return np.asarray(MORE * (multiplier[:, 0] * self.eps + (np.maximum(height - multiplier, 0) * reach).sum(1)))

    def _gain_l2(self, height: Array, reach: Array) -> Array:
        """For every λ > 0: Σ hᵢ|dᵢ| ≤ λ·eps²/2 + Σ max over 0 ≤ t ≤ reachᵢ of (hᵢ·t − λt²/2), as Σdᵢ² ≤ eps².

        The maximum is at t = min(hᵢ/λ, reachᵢ). A t that is off by δ loses λδ²/2, the square of a rounding error, so
        the sum of the parts' magnitudes times 2⁻³⁰ pays for it as well. λ is found by bisection; any would do.
        """
        norm = np.sqrt((height**2).sum(1, keepdims=True))
        low, high = norm * 0, norm / max(self.eps, 1e-30) + 1e-30
        for _ in range(50):
            middle = (low + high) / 2
            outside = (np.minimum(height / middle, reach) ** 2).sum(1, keepdims=True) > self.eps**2
            low, high = np.where(outside, middle, low), np.where(outside, high, middle)
        t = np.minimum(height / high, reach)
        linear, square = (height * t).sum(1), (high * t**2).sum(1) / 2
        dual = linear - square + high[:, 0] * self.eps**2 / 2 + 2.0**-30 * (linear + square)
        return np.asarray(MORE * np.minimum(dual, norm[:, 0] * self.eps))

    def contains(self, point: NDArray[np.float32]) -> bool:
        """Decided in exact rational arithmetic."""
        if not ((point >= 0) & (point <= 1)).all():
            return False
        moved = np.flatnonzero(point.ravel() != self.image.ravel())
        pairs = zip(point.ravel()[moved].tolist(), self.image.ravel()[moved].tolist(), strict=True)
        distances = [abs(Fraction(u) - Fraction(x)) for u, x in pairs]
        eps = Fraction(self.eps)
        if self.norm == "linf":
            return all(distance <= eps for distance in distances)
        if self.norm == "l1":
            return sum(distances) <= eps
        return sum(distance**2 for distance in distances) <= eps**2

    def furthest(self, slope: Array) -> Array:
        """About the point of the ball where the plane is highest; what is proven does not depend on it."""
        image, (lower, upper) = self.centre, self.box
        if self.norm == "linf":
            return np.where(slope > 0, upper, np.where(slope < 0, lower, image))
        if self.norm == "l2":
            reach = np.where(slope > 0, upper - image, lower - image)
            step = slope / max(float(np.linalg.norm(slope)), 1e-300)
            best = image
            for scale in self.eps * 2.0 ** np.arange(8):  # what is clipped at [0, 1] leaves way for the others
                moved = np.where(np.abs(scale * step) < np.abs(reach), scale * step, reach)
                moved = moved * min(1.0, self.eps / max(float(np.linalg.norm(moved)), 1e-300))
                if (slope * moved).sum() > (slope * (best - image)).sum():
                    best = image + moved
            return best
        reach = np.where(slope > 0, upper - image, image - lower).ravel()
        order = np.argsort(-np.abs(slope.ravel()))
        before = np.concatenate([[0.0], reach[order].cumsum()[:-1]])
        moved = np.zeros(slope.size)
        moved[order] = np.clip(self.eps - before, 0, reach[order])
        return image + np.sign(slope) * moved.reshape(slope.shape)

    def inside(self, point: Array) -> NDArray[np.float32] | None:
        """A float32 point of the ball next to `point`, or None if rounding leads out of it."""
        image = self.centre
        for shrink in (0.0, 1e-6, 1e-5, 1e-4, 1e-3):
            moved = (image + (1 - shrink) * (np.clip(point, 0, 1) - image)).astype(np.float32)
            if self.norm == "linf" and not shrink:  # a step back for the pixels that left the ball in rounding
                moved = np.where(moved > image + self.eps, np.nextafter(moved, np.float32(0)), moved)
                moved = np.where(moved < image - self.eps, np.nextafter(moved, np.float32(1)), moved)
            if self.contains(moved):
                return moved
        return None
