"""The shift Δ of the joint model, chosen as in the paper (Section 4.1, "Semi-Joint Training")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from prood.bounds import Method
from prood.data import ImageSet
from prood.errors import ProodError
from prood.evaluation.evaluator import evaluate
from prood.models import ProoD


@dataclass(frozen=True)
class Candidate:
    """A joint model with this shift, and what it reaches on images that no part of it was trained on."""

    shift: float
    auc: float
    gauc: float
    accuracy: float | None = None


def choose_shift(candidates: Iterable[Candidate], baseline_auc: float) -> Candidate:
    """The highest GAUC among those with a better AUC than outlier exposure; if none is better, the highest AUC.

    All AUCs, `baseline_auc` of outlier exposure too, are those on held-back images of the training out-distribution:
    test out-distributions must not have a say. Of equals, the one with the smaller shift.
    """
    found = list(candidates)
    if not found:
        raise ProodError("there is no shift to choose from: give the candidates of at least one model")
    better = [one for one in found if one.auc > baseline_auc]
    if better:
        return max(better, key=lambda one: (one.gauc, -one.shift))
    return max(found, key=lambda one: (one.auc, -one.shift))


def measure(
    model: nn.Module,
    inside: ImageSet,
    outside: ImageSet,
    eps: float,
    *,
    method: Method = "best",
    device: str | torch.device = "cpu",
) -> Candidate:
    """AUC, GAUC at radius `eps` by this `method`, and accuracy, on sets such as `prood.training.held_back` gives.

    A model without a shift, as outlier exposure is, has 0; one without a certificate has a GAUC of 0.
    """
    (found,) = evaluate(model, inside=inside, outside={outside.name: outside}, eps=eps, method=method, device=device)
    shift = float(model.shift) if isinstance(model, ProoD) else 0.0
    return Candidate(shift, found.auc, found.gauc, found.accuracy)
