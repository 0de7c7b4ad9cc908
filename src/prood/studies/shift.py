"""The shift Δ of the joint model, chosen as in the paper (Section 4.1, "Semi-Joint Training")."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from prood.bounds import Method
from prood.data import ImageSet
from prood.errors import BadValue
from prood.evaluation.evaluator import evaluate
from prood.models import Discriminator, ProoD
from prood.studies.pairs import pairs


@dataclass(frozen=True)
class Candidate:
    """A joint model with this shift, and what it reaches on images that no part of it was trained on."""

    shift: float
    auc: float
    gauc: float
    accuracy: float | None = None


def choose_shift(candidates: Iterable[Candidate], baseline_auc: float, *, tolerance: float = 0.0) -> Candidate:
    """The highest GAUC among those with a better AUC than outlier exposure; if none is better, the highest AUC.

    All AUCs, `baseline_auc` of outlier exposure too, are those on held-out images of the training out-distribution:
    test out-distributions must not have a say. Among equals, the smaller shift wins. The paper's rule has no
    `tolerance`; with one, an AUC that is lower by less than it is good enough.
    """
    if not 0 <= tolerance < 1:
        raise BadValue(f"the tolerance of a choice is a difference of AUCs, 0 or more and below 1, not {tolerance}")
    found = list(candidates)
    if not found:
        raise BadValue("there is no shift to choose from: give the candidates of at least one model")
    if better := [one for one in found if one.auc > baseline_auc - tolerance]:
        return max(better, key=lambda one: (one.gauc, -one.shift))
    return max(found, key=lambda one: (one.auc, -one.shift))


def shift_from_prior(fraction: float) -> float:
    """Δ = log( p̃(i)/p̃(o) ) for an expected `fraction` p̃(o) of inputs that are out-distribution (Section 2.1, Eq. 9).

    The discriminator is trained with p(i) = p(o) = ½. Were it perfect, e^g would be the ratio of both densities, and
    another prior would multiply it by e^Δ with Δ = log( p(o)·p̃(i) / (p(i)·p̃(o)) ).
    """
    if not 0 < fraction < 1:
        raise BadValue(f"the expected fraction of out-distribution inputs lies between 0 and 1, not {fraction}")
    return math.log1p(-fraction) - math.log(fraction)


def prior_from_shift(shift: float) -> float:
    """The fraction p̃(o) of out-distribution inputs that this Δ stands for: 1/(1 + e^Δ)."""
    if math.isnan(shift):
        raise BadValue("a shift is a number, not NaN")
    return math.exp(-max(shift, 0.0)) / (1 + math.exp(-abs(shift)))  # no overflow on either side


def choice_of_shift(shift: float | None, prior: float | None) -> float | None:
    """The shift that was given, or the one of the prior that was given; both at once contradict each other."""
    if shift is not None and prior is not None:
        raise BadValue("--prior determines the shift: give only one of --shift and --prior")
    return shift if prior is None else shift_from_prior(prior)


@torch.no_grad()
def sweep(
    classifier: nn.Module,
    discriminator: Discriminator,
    inside: ImageSet,
    outside: ImageSet,
    eps: float,
    shifts: Iterable[float],
    *,
    device: str | torch.device = "cpu",
) -> tuple[float, list[Candidate]]:
    """A classifier's own AUC, and its joint models with each shift, as `measure` finds them: one pass serves them all.

    Their accuracy is the classifier's, as combining keeps the order of the classes; None without labels.
    """
    sample = pairs(classifier, discriminator, inside, outside, eps, device=device)
    accuracy = None
    if inside.labels is not None:
        rows = torch.split(torch.arange(len(inside)), 250)
        classes = torch.cat([classifier(inside.floats(some).to(device)).argmax(1).cpu() for some in rows])
        accuracy = (classes == inside.labels.cpu()).double().mean().item()
    found = [Candidate(shift, *sample.measure(shift), accuracy) for shift in shifts]
    return sample.classifier_auc, found


def measure(
    model: nn.Module,
    inside: ImageSet,
    outside: ImageSet,
    eps: float,
    *,
    bound: Method = "best",
    device: str | torch.device = "cpu",
) -> Candidate:
    """AUC, GAUC at radius `eps` by this `method`, and accuracy, on sets such as `prood.training.held_back` gives.

    A model without a shift, as outlier exposure is, has 0; one without a certificate has a GAUC of 0.
    """
    (found,) = evaluate(model, inside=inside, outside={outside.name: outside}, eps=eps, bound=bound, device=device)
    shift = float(model.shift) if isinstance(model, ProoD) else 0.0
    return Candidate(shift, found.auc, found.gauc, found.accuracy)
