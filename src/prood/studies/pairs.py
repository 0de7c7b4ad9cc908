"""What a joint score is chosen by: s, g and the bound of g for two sets of images."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prood.bounds import Method
from prood.data import ImageSet
from prood.evaluation import EvaluateOptions, auc
from prood.evaluation.measuring import CERTIFIED, Evaluator
from prood.models import Confidence, Discriminator, Gate, InLogit
from prood.models.joint import product_logit

Scores = tuple[Tensor, Tensor, Tensor]
"""Scores of the images inside, of those outside, and the bounds of these over their balls."""
OPEN = Gate()


@dataclass(frozen=True, eq=False)
class Pairs:
    """What detection sees of images: the classifier's score s and g, and of those outside the bound ḡ over their balls.

    Float64 on the CPU. A joint score of s and g is measured on this alone, without the networks.
    """

    s_in: Tensor
    g_in: Tensor
    s_out: Tensor
    g_out: Tensor
    bound_out: Tensor

    def scores(self, shift: float, gate: Gate = OPEN) -> Scores:
        """min(S, λ(g + Δ)) of the joint model with this shift and gate, and its bound λ(ḡ + Δ)."""
        inside, outside, bound = (g.double() + shift for g in (self.g_in, self.g_out, self.bound_out))
        inner, outer = product_logit(self.s_in, inside), product_logit(self.s_out, outside)
        return torch.minimum(inner, gate(inside)), torch.minimum(outer, gate(outside)), gate(bound)

    def measure(self, shift: float) -> tuple[float, float]:
        """AUC and GAUC of the joint model with this shift."""
        inner, outer, sure = self.scores(shift)
        return auc(inner, outer), auc(inner, sure)

    @property
    def classifier_auc(self) -> float:
        return auc(self.s_in, self.s_out)

    @property
    def g_alone(self) -> Scores:
        return self.g_in, self.g_out, self.bound_out


def pairs(
    classifier: nn.Module,
    discriminator: Discriminator,
    inside: ImageSet,
    outside: ImageSet,
    eps: float,
    *,
    method: Method = "best",
    device: str | torch.device = "cpu",
) -> Pairs:
    """s and g of two image sets, and ḡ at radius `eps` of the second, in the arithmetic that certificates cover."""
    found = pairs_of(classifier, discriminator, inside, {"": outside}, eps, method=method, device=device)
    return found[""]


def pairs_of(
    classifier: nn.Module,
    discriminator: Discriminator,
    inside: ImageSet,
    outsides: Mapping[str, ImageSet],
    eps: float,
    *,
    method: Method = "best",
    device: str | torch.device = "cpu",
) -> dict[str, Pairs]:
    """The same for several sets outside, by their names."""
    place = torch.device(device)
    sure, known = Confidence(classifier.to(place).eval()), InLogit(discriminator.to(place).eval())
    evaluator = Evaluator(known, EvaluateOptions(device=place))
    certified = Evaluator(known, EvaluateOptions(device=place, batch=CERTIFIED if place.type == "cpu" else None))
    with torch.no_grad():
        inner = evaluator.over(inside, sure), evaluator.over(inside, known)
        found = {}
        for name, images in outsides.items():
            bounds = certified.over(images, lambda some: known.upper_bound(some, eps, method=method))
            found[name] = Pairs(*inner, evaluator.over(images, sure), evaluator.over(images, known), bounds)
        return found
