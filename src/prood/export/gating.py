"""The gate of a joint model in the file: the highest score that g allows, of an image and over a ball."""

import torch
from torch import Tensor, nn

from prood.export.portable import Portable, sigmoid
from prood.models import Gated
from prood.models.confidence import confidence_of
from prood.models.gated import limited
from prood.models.joint import TINY

OFF = 2.0**-48
"""Far more, relative to knots, caps and x, than two evaluations of λ(x) may be apart where one fuses its product."""


class Gating(nn.Module):
    """λ(x) in float64, for g + Δ in the place of x."""

    knots: Tensor
    caps: Tensor

    def __init__(self, model: Gated) -> None:
        super().__init__()
        self.register_buffer("knots", model.knots.detach())
        self.register_buffer("caps", model.caps.detach())
        self.size = model.knots.abs().max().item() + model.caps.abs().max().item()

    def forward(self, x: Tensor) -> Tensor:
        with Portable():
            return limited(x, self.knots, self.caps)

    def bound(self, x: Tensor) -> Tensor:
        """At least λ of every number up to x, whichever products are fused, here or there; and at most x, as λ is."""
        return torch.minimum(self(x) + OFF * (x.clamp(min=0) + self.size), x)

    def limit(self, exact: Tensor, confidence: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """The probabilities of Eq. 3 and their largest, as far as λ(g + Δ) allows.

        Where that is less, they are mixed with 1/K, as those of `Gated` are.
        """
        classes, score = exact.shape[1], self(g)
        excess = (confidence - 1 / classes).clamp(min=TINY)
        part = ((classes - 1) / classes * sigmoid(score) / excess).clamp(max=1)[:, None]
        limited_to = confidence_of(score, classes, sigmoid)
        return exact * part + (1 - part) * (1 / classes), torch.minimum(confidence, limited_to)
