"""What the model computes about a batch, before anything is decided, and the probabilities of its classes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prood.models.confidence import Floats


class Outputs(NamedTuple):
    """What a model computes: logits for Eq. 3, g + Δ, scores, and the highest scores that g allows."""

    logits: Floats
    g: Floats
    scores: Floats
    caps: Floats


def probabilities(logits: Floats, p_in: Floats, labels: NDArray[np.int64], confidence: Floats) -> Floats:
    """Eq. 3. The label's probability is the confidence, from its own formula, which is the one that is certified."""
    weights = np.exp(logits - logits.max(1, keepdims=True))
    inside = weights / weights.sum(1, keepdims=True)
    found = inside * p_in[:, None] + (1 - p_in[:, None]) / logits.shape[1]
    np.put_along_axis(found, labels[:, None], confidence[:, None], 1)
    return np.asarray(found)
