"""Axis-aligned boxes as centre and radius, the form in which bounds travel through a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from prood.errors import ProodError


@dataclass(frozen=True)
class Box:
    """A batch whose first rows are single points and whose last rows are boxes [centre − radius, centre + radius].

    `centre` has P + B rows and `radius` has B. One pass through the layers thus serves P points and B boxes: in
    training the in-distribution batch shares every convolution with the centres of the out-distribution boxes.
    """

    centre: Tensor
    radius: Tensor
    anchored: bool = False  # one point a box, inside it: where a linear relaxation has a choice, it is tight there
    exact_upper: Tensor | None = None  # centre + radius, where a layer knows it without the rounding of the sum

    @classmethod
    def ball(
        cls,
        images: Tensor,
        eps: float | Tensor,
        *,
        clip: tuple[float, float] | None = (0.0, 1.0),
        points: Tensor | None = None,
    ) -> Box:
        """The ℓ∞ balls of radius `eps` (a number, or one per image) around `images`, cut to `clip`.

        `points` are extra rows that only want the ordinary forward pass.
        """
        if isinstance(eps, Tensor) and eps.ndim:
            if eps.numel() not in (1, len(images)):
                raise ProodError(f"eps is one number, or one per image: got {eps.numel()} for {len(images)} images")
            eps = eps.reshape(-1, *[1] * (images.ndim - 1)).to(images)
        lower, upper = images - eps, images + eps
        if clip is not None:
            lower, upper = lower.clamp(*clip), upper.clamp(*clip)
        centre = torch.lerp(lower, upper, 0.5)
        radius = upper - centre
        return cls(centre if points is None else torch.cat([points, centre]), radius)

    def onto(self, centre: Tensor, radius: Tensor) -> Box:
        """The box after a layer."""
        return Box(centre, radius, self.anchored)

    @property
    def n_points(self) -> int:
        return len(self.centre) - len(self.radius)

    @property
    def points(self) -> Tensor:
        """The rows that are single points."""
        return self.centre[: self.n_points]

    @property
    def middle(self) -> Tensor:
        """The centres of the rows that are boxes."""
        return self.centre[self.n_points :] if self.n_points else self.centre

    @property
    def lower(self) -> Tensor:
        return self.middle - self.radius

    @property
    def upper(self) -> Tensor:
        return self.middle + self.radius if self.exact_upper is None else self.exact_upper

    def monotone(self, function: Callable[[Tensor], Tensor]) -> Box:
        """The image of the box under a function that does not decrease in any coordinate."""
        lower, upper = function(self.lower), function(self.upper)
        centre = torch.lerp(lower, upper, 0.5)
        radius = upper - centre
        if self.n_points:
            centre = torch.cat([function(self.points), centre])
        return self.onto(centre, radius)
