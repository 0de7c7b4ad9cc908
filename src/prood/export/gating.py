"""Functions that rise in the file: the gate of a joint model, and the scales of a committee's members."""

import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from prood.export.portable import Portable, sigmoid
from prood.models import Gated
from prood.models.confidence import confidence_of
from prood.models.joint import TINY
from prood.models.rising import rising

OFF = 2.0**-48
"""Far more, relative to knots, values and x, than two evaluations may be apart where one fuses its product."""


class Scaling(nn.Module):
    """A `Rising` function in float64."""

    knots: Tensor
    caps: Tensor

    def __init__(self, knots: Tensor, values: Tensor) -> None:
        super().__init__()
        self.register_buffer("knots", knots.detach())
        self.register_buffer("caps", values.detach())
        self.size = sum(some.abs().max().item() for some in (knots, values)) if len(knots) else 0.0

    def forward(self, x: Tensor) -> Tensor:
        with Portable():
            return rising(x, self.knots, self.caps)

    def bound(self, x: Tensor) -> Tensor:
        """At least the value of every number up to x, whichever products are fused, here or there."""
        return Scaling.forward(self, x) + OFF * (x.clamp(min=0) + self.size)


class Least(nn.Module):
    """A committee's g in float64, without the rounding to float32."""

    def __init__(self, members: Sequence[nn.Module], scales: Sequence[Scaling]) -> None:
        super().__init__()
        self.members, self.scales = nn.ModuleList(members), nn.ModuleList(scales)

    def forward(self, images: Tensor) -> Tensor:
        found = [scale(member(images)) for member, scale in zip(self.members, self.scales, strict=True)]
        least: Tensor = functools.reduce(torch.minimum, found)
        return least


class LeastBound(Least):
    """ḡ of a committee, whether the deployed g is rounded to float32 or not; infinite where a member may overflow."""

    def forward(self, images: Tensor, eps: Tensor) -> Tensor:  # type: ignore[override]  # a ball has a radius
        bounds = [member(images, eps) for member in self.members]
        found = [scale.bound(bound) for scale, bound in zip(self.scales, bounds, strict=True)]  # type: ignore[operator]
        least, most = functools.reduce(torch.minimum, found), functools.reduce(torch.maximum, bounds)
        return torch.where(most < torch.inf, torch.maximum(least, least.float().double()), torch.inf)


class Gating(Scaling):
    """λ(x) in float64, for g + Δ in the place of x."""

    def __init__(self, model: Gated) -> None:
        super().__init__(model.knots, model.caps)

    def forward(self, x: Tensor) -> Tensor:
        return torch.minimum(super().forward(x), x.double())

    def bound(self, x: Tensor) -> Tensor:
        """The bound of a scale, and at most x, as λ is."""
        return torch.minimum(super().bound(x), x)

    def limit(self, exact: Tensor, confidence: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """The probabilities of Eq. 3 and their largest, as far as λ(g + Δ) allows.

        Where that is less, they are mixed with 1/K, as those of `Gated` are.
        """
        classes, score = exact.shape[1], self(g)
        excess = (confidence - 1 / classes).clamp(min=TINY)
        part = ((classes - 1) / classes * sigmoid(score) / excess).clamp(max=1)[:, None]
        limited_to = confidence_of(score, classes, sigmoid)
        return exact * part + (1 - part) * (1 / classes), torch.minimum(confidence, limited_to)
