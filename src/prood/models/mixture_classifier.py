"""CCU: a classifier whose confidence falls with the ratio of two mixtures of Gaussians (Meinke and Hein, 2020)."""

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from prood import bounds
from prood.bounds.certificate import check_options
from prood.models.architectures import Spec, architecture, build, spec_of
from prood.models.confidence import confidence_bound
from prood.models.joint import confidence_logit, fuse
from prood.models.mixtures import MixtureRatio, ball_bound, doubled, metric_bound
from prood.models.score import Score, quick_logits, scores


class MixtureClassifier(nn.Module):
    """p(y|x) = ( p_f(y|x)·p(x|in) + p(x|out)/K ) / ( p(x|in) + p(x|out) ), both densities Gaussian mixtures.

    CCU, certified certain uncertainty (Meinke and Hein, 2020). With g = log p(x|in) − log p(x|out) it has the form of
    ProoD's joint model, p_f·σ(g) + (1 − σ(g))/K: a bound of g bounds the confidence, whatever f is. Calling it returns
    logits, log(K·p).
    """

    def __init__(self, classifier: nn.Module, ratio: MixtureRatio) -> None:
        super().__init__()
        self.classifier = classifier
        self.ratio = ratio

    @property
    def architecture(self) -> dict[str, Any]:
        components, dimension = self.ratio.inside.centres.shape
        sizes = {"dimension": dimension, "components": components}
        return {"name": "mixture-classifier", "classifier": spec_of(self.classifier)} | sizes

    def logits(self, images: Tensor) -> Tensor:
        """The classifier's own logits."""
        logits: Tensor = self.classifier(images)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return fuse(self.logits(images), self.ratio(images))

    def in_logit(self, images: Tensor) -> Tensor:
        """g(x), in float64: what is deployed, and what the bounds are bounds of."""
        with bounds.strict(images.device):
            g: Tensor = doubled(self.ratio)(images.double())
        return g

    @torch.no_grad()
    def in_logit_bound(self, images: Tensor, eps: float | Tensor) -> Tensor:
        """At least g(u) for every u in [0, 1]^d with ‖u − x‖∞ ≤ eps; see `prood.models.mixtures`."""
        check_options(eps)
        with bounds.strict(images.device):
            return ball_bound(doubled(self.ratio), images, eps)

    @torch.no_grad()
    def metric_bound(self, images: Tensor, radius: float | Tensor) -> Tensor:
        """No u with d(u, x) ≤ radius has a confidence above this: the certificate of the paper, in its metric.

        d(u, x) = ‖A(u − x)‖ with the matrix of the mixtures, A = C^(−1/2) for the data's covariance C.
        """
        check_options(radius)
        with bounds.strict(images.device):
            g = metric_bound(doubled(self.ratio), images, radius)
            classes = self.logits(images[:1]).shape[1]
        return confidence_bound(g, classes)


@scores(MixtureClassifier)
class MixtureConfidence(Score):
    """The confidence as log((c − 1/K)/(1 − c)), where a bound of g is a bound of the score, as for the joint model."""

    model: MixtureClassifier

    def __call__(self, images: Tensor) -> Tensor:
        return confidence_logit(self.model.logits(images), self.model.in_logit(images))

    def quick(self, images: Tensor) -> Tensor:
        return confidence_logit(quick_logits(self.model.classifier, images), self.model.ratio(images))

    def logits(self, images: Tensor) -> Tensor:
        return self.model.logits(images)

    def upper_bound(self, images: Tensor, eps: float | Tensor, **options: Unpack[bounds.Options]) -> Tensor:
        """In the maximum norm by tangents, whatever the method; a ball of another norm lies inside that one."""
        check_options(eps, **options)
        return self.model.in_logit_bound(images, eps)


@architecture("mixture-classifier")
def _mixture_classifier(classifier: Spec, dimension: int, components: int) -> MixtureClassifier:
    return MixtureClassifier(build(classifier), MixtureRatio(dimension, components))
