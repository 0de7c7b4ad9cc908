"""What a model's own threshold does to the images of an evaluation: which are accepted, and which provably rejected."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from prood.errors import Damaged
from prood.evaluation.results import Evaluation
from prood.models.confidence import confidence_bound, confidence_of


def judged(one: Evaluation, threshold: float | None, classes: int | None) -> Evaluation:
    """The evaluation with the shares at this threshold, as a detector decides: an image is accepted at or above it.

    `classes` is None where scores themselves are compared, as g of a bare discriminator. A threshold may be set anew
    after the scores were made: it decides nothing about them, and does not belong to an evaluation's identity.
    """
    if threshold == one.threshold and (threshold is None or one.accepted is not None):
        return one
    bare = replace(one, threshold=threshold, accepted=None, passed=None, proved=None)
    if threshold is None or one.scores is None:
        return bare
    with suppress(Damaged):  # then the shares are missing, as without scores
        inside, clean, certified = one.scores.inside, one.scores.clean, one.scores.certified
        if classes is not None:
            inside, clean = confidence_of(inside, classes), confidence_of(clean, classes)
            certified = confidence_bound(certified, classes)
        shares = (np.mean(inside >= threshold), np.mean(clean >= threshold), np.mean(certified < threshold))
        accepted, passed, proved = map(float, shares)
        return replace(bare, accepted=accepted, passed=passed, proved=proved)
    return bare
