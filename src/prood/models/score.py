"""A score maps images to one number, higher for in-distribution, with an upper bound over a ball where one exists.

Every method is a score, so that one evaluator and one set of attacks serve them all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar, Unpack

import torch
from torch import Tensor, nn

from prood import bounds
from prood.models.discriminators import Discriminator
from prood.models.joint import ProoD, confidence_logit


class Score(ABC):
    """A score without a certificate: its upper bound is +∞, and its guaranteed AUC is therefore 0."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @abstractmethod
    def __call__(self, images: Tensor) -> Tensor:
        """One float64 number per image."""

    def quick(self, images: Tensor) -> Tensor:
        """The score up to rounding, for a search that makes many: on a GPU it may be computed faster."""
        return self(images)

    def logits(self, images: Tensor) -> Tensor | None:
        """What the model classifies by; None if it only detects."""
        return None

    def upper_bound(self, images: Tensor, eps: float | Tensor, **options: Unpack[bounds.Options]) -> Tensor:
        """At least the score of every image in the ball of radius eps inside [0, 1]^d."""
        return torch.full((len(images),), torch.inf, dtype=torch.float64, device=images.device)

    def part(self) -> Score | None:
        """The score from whose upper bounds those of this one follow, by `bound_from`; None where there is none."""
        return None

    def bound_from(self, bounds: Tensor) -> Tensor:
        """The upper bounds of this score, from those of its part over the same balls."""
        raise NotImplementedError(f"{type(self).__name__} has no part")


_SCORES: dict[type[nn.Module], type[Score]] = {}
S = TypeVar("S", bound=type[Score])


def scores(*models: type[nn.Module]) -> Callable[[S], S]:
    """Class decorator: this is the score by which models of these classes, and of classes made from them, detect."""

    def decorate(score: S) -> S:
        _SCORES.update(dict.fromkeys(models, score))
        return score

    return decorate


class OfLogits(Score):
    """A function of what the model classifies by: its confidence, unless `of` says otherwise."""

    def of(self, logits: Tensor) -> Tensor:
        return confidence_logit(logits)

    def __call__(self, images: Tensor) -> Tensor:
        return self.of(self.logits(images))

    def quick(self, images: Tensor) -> Tensor:
        return self.of(quick_logits(self.model, images))

    def logits(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits


class Confidence(OfLogits):
    """The confidence of a classifier, as log((c − 1/K)/(1 − c)): the same order as c, and no ties near 1."""


@scores(ProoD)
class JointConfidence(Score):
    """The confidence of the joint model on the same scale, where its certificate is ḡ(x) + Δ (Eq. 4)."""

    model: ProoD

    def __call__(self, images: Tensor) -> Tensor:
        return self.model.scored(self.logits(images), self.model.in_logit(images))

    def quick(self, images: Tensor) -> Tensor:
        g = quick_g(self.model.discriminator, images) + self.model.shift
        return self.model.scored(quick_logits(self.model.classifier, images), g)

    def logits(self, images: Tensor) -> Tensor:
        return self.model.logits(images)

    def upper_bound(self, images: Tensor, eps: float | Tensor, **options: Unpack[bounds.Options]) -> Tensor:
        return self.model.in_logit_bound(images, eps, **options).double()

    def part(self) -> Score:
        return InLogit(self.model.discriminator)

    def bound_from(self, bounds: Tensor) -> Tensor:
        return self.model.shifted(bounds.float()).double()  # a bound of g is a float32 number, and nothing is lost


@scores(Discriminator)
class InLogit(Score):
    """The bare discriminator's g(x)."""

    model: Discriminator

    def __call__(self, images: Tensor) -> Tensor:
        return self.model.covered(images).double()

    def quick(self, images: Tensor) -> Tensor:
        return quick_g(self.model, images).double()

    def upper_bound(self, images: Tensor, eps: float | Tensor, **options: Unpack[bounds.Options]) -> Tensor:
        return self.model.upper_bound(images, eps, **options).double()


def quick_logits(classifier: nn.Module, images: Tensor) -> Tensor:
    """In half precision on a GPU, where a search spends its time."""
    with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
        logits: Tensor = classifier(images)
    return logits.float()


def quick_g(discriminator: Discriminator, images: Tensor) -> Tensor:
    """In float32; on a GPU as its libraries like it best, with TF32 where nobody has switched that off."""
    as_it_is = torch.autocast(images.device.type, enabled=False)
    with as_it_is if images.is_cuda else bounds.strict(images.device, transforms=True):
        g: Tensor = discriminator(images)
    return g


def score_of(model: nn.Module) -> Score:
    """The score by which a model detects: what was declared for its class by `scores`, else its confidence."""
    kind = next((_SCORES[cls] for cls in type(model).__mro__ if cls in _SCORES), Confidence)
    return kind(model)
