"""How well scores tell in- from out-distribution, in the paper's convention: strict comparison, ties lose."""

from __future__ import annotations

import torch
from torch import Tensor

from prood.errors import ProodError


def auc(inside: Tensor, outside: Tensor) -> float:
    """P(h(x) > h(z)) for x from the in- and z from the out-distribution (Section 4.2), in O(n log n).

    With upper bounds of the out-distribution scores as `outside` it is the guaranteed AUC; a bound of +∞ counts as
    lost against every in-distribution score.
    """
    inside, outside = (values.detach().double().flatten().cpu() for values in (inside, outside))
    if not len(inside) or not len(outside):
        raise ProodError("an AUC needs at least one in- and one out-distribution score")
    if inside.isnan().any() or outside.isnan().any():
        raise ProodError("a score is not a number: the model has diverged or its input was damaged")
    not_above = torch.searchsorted(inside.sort().values, outside, right=True)
    return 1 - not_above.double().mean().item() / len(inside)
