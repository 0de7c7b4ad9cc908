"""The confidence below which an image is rejected."""

from __future__ import annotations

import torch
from torch import Tensor

from prood.errors import ProodError


def threshold_at(confidences: Tensor, tpr: float = 0.95) -> float:
    """The largest t such that at least `tpr` of these confidences are ≥ t, in float64; below t an image is rejected.

    `confidences` are those of in-distribution images that the model was not trained on. t is one of them, without
    interpolation, so that a comparison with ≥ accepts it.
    """
    if not 0 < tpr <= 1:
        raise ProodError(f"a true positive rate is above 0 and at most 1, not {tpr}")
    if not confidences.numel():
        raise ProodError("a threshold needs the confidence of at least one in-distribution image")
    ordered = confidences.detach().double().flatten().sort(descending=True).values
    if ordered.isnan().any():
        raise ProodError("a confidence is NaN: look for the image, or the weight, that makes it so")
    # The smallest k with k/n ≥ tpr, by that very comparison: ⌈tpr·n⌉ is one too many where the product is rounded up.
    shares = torch.arange(1, len(ordered) + 1, dtype=torch.float64) / len(ordered)
    accepted = int((shares < tpr).sum())
    return float(ordered[accepted])
