"""The joint model of classifier and discriminator (Eq. 3), everything in the log domain."""

import math
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood import bounds
from prood.errors import BadValue, Diverged, Unsupported
from prood.models.architectures import Metadata, Spec, architecture, build, spec_of
from prood.models.confidence import (
    check_logits,
    checked_threshold,
    confidence_bound,
    confidence_of,
    logistic,
    score_at,
    score_below,
)
from prood.models.discriminators import Discriminator
from prood.models.fitting import fitted

TINY = torch.finfo(torch.float64).tiny  # under a logarithm, so that exactly equal logits have a finite score


def fuse(logits: Tensor, g: Tensor) -> Tensor:
    """log(K·p(y|x)) for p(y|x) = p_f(y|x)·σ(g) + (1 − σ(g))/K, from the classifier's logits and g (Eq. 3).

    Relative to the uniform 1/K, because that is where the joint model goes far away from all data: there these values
    are tiny but keep their order, where log p would round to −log K for every class.
    """
    log_k = math.log(logits.shape[1])
    inside = F.log_softmax(logits, 1) + log_k + F.logsigmoid(g)[:, None]
    return torch.logaddexp(inside, F.logsigmoid(-g)[:, None])


def confidence_logit(logits: Tensor, g: Tensor | None = None) -> Tensor:
    """log((c − 1/K) / (1 − c)) for the confidence c of the joint model, or of the bare classifier without g.

    It grows with c but, unlike c, keeps its digits at both ends: near 1/K (far from the data) and near 1. With
    p = max p_f, c − 1/K = σ(g)(p − 1/K) and 1 − c = σ(g)(1 − p) + σ(−g)(1 − 1/K). For p = 1, the worst case of
    Eq. 4, it equals g: on this scale the certificate of the confidence is ḡ itself.
    """
    logits = logits.double()
    classes = logits.shape[1]
    top = logits.max(1, keepdim=True)
    rest = logits.scatter(1, top.indices, -torch.inf)
    normaliser = logits.logsumexp(1)
    log_p = top.values[:, 0] - normaliser
    log_missing = rest.logsumexp(1) - normaliser  # log(1 − p)
    # p − 1/K = p/K · Σ_k (1 − p_k/p): no cancellation when all logits are close.
    log_excess = log_p + (-torch.expm1(logits - top.values)).sum(1).clamp_min(TINY).log() - math.log(classes)
    if g is None:
        return log_excess - log_missing
    g = g.double()
    inside, outside = F.logsigmoid(g), F.logsigmoid(-g)
    logit = inside + log_excess - torch.logaddexp(inside + log_missing, outside + math.log1p(-1 / classes))
    return torch.minimum(logit, g)  # true of the exact value, and rounding must not undo it


def product_logit(s: Tensor, g: Tensor) -> Tensor:
    """S with σ(S) = σ(s)·σ(g), in float64: the score of Eq. 3 from the classifier's own score s and g.

    For a confidence p, σ(s) = (p − 1/K)/(1 − 1/K), and Eq. 3 multiplies this by σ(g + Δ). So the joint model is a soft
    minimum of s and g + Δ. No infinity makes it NaN.
    """
    s, g = s.double(), g.double()
    both = -s.clamp(-1e300, 1e300) - g.clamp(-1e300, 1e300)  # ∞ − ∞ is NaN
    return torch.minimum(-torch.logaddexp(torch.logaddexp(-s, -g), both), g)


class ProoD(nn.Module):
    """p(y|x) = p_f(y|x)·σ(g(x) + Δ) + (1 − σ(g(x) + Δ))/K for any classifier f that returns logits.

    Calling it returns logits again (log(K·p), so that softmax gives p): a drop-in for the classifier. `shift` is the
    Δ of Eq. 9. The order of the classes is the classifier's; `predict` takes it from there. Beside a classifier that
    `open_classifier` opened for larger images, the discriminator is enlarged: it averages them first.

    `about` is what the file says that `prood.load` read the model from. It does not belong to the weights:
    `fingerprint` does not cover it, and `save` writes only the facts that it is given.
    """

    shift: Tensor

    def __init__(self, classifier: nn.Module, discriminator: Discriminator, shift: float = 0.0) -> None:
        super().__init__()
        if not isinstance(discriminator, Discriminator):
            raise BadValue(f"ProoD needs a prood.Discriminator as its second part, not {type(discriminator)}")
        if not abs(shift) <= torch.finfo(torch.float32).max:  # in which it is kept
            raise BadValue(f"the shift must be a finite number, not {shift}")
        image = getattr(classifier, "opened_for", None)  # of somebody else's, opened by `open_classifier`
        discriminator = discriminator if image is None else fitted(discriminator, image)
        self.classifier = classifier
        self.discriminator = discriminator
        self.about: Metadata | None = None
        self.register_buffer("shift", torch.tensor(float(shift), dtype=torch.float32))

    def __repr__(self) -> str:
        """Its parts by name, and not their layers, which `print(model.classifier)` shows."""
        spec = getattr(self.classifier, "architecture", None) or {}
        name = spec.get("name", type(self.classifier).__name__)
        facts = [f"classifier={name}", f"discriminator={self.discriminator!r}", f"shift={self.shift.item():g}"]
        facts += [f"{len(self.classes)} classes"] if self.classes else []
        facts += [] if self.threshold is None else [f"threshold={self.threshold:.4g}"]
        return f"{type(self).__name__}({', '.join(facts)})"

    @property
    def architecture(self) -> dict[str, Any]:
        return {"name": "prood", "classifier": spec_of(self.classifier), "discriminator": spec_of(self.discriminator)}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Their names, where the model's file states them."""
        return None if self.about is None or self.about.classes is None else tuple(self.about.classes)

    @property
    def threshold(self) -> float | None:
        """Reject an image whose confidence is below it; None where no file states one."""
        return None if self.about is None else self.about.threshold

    def logits(self, images: Tensor) -> Tensor:
        """The classifier's own logits."""
        logits = self.classifier(images)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images) or logits.shape[1] < 2:
            raise Unsupported("the classifier must return logits of shape (images, classes) with two classes or more")
        return logits

    def scored(self, logits: Tensor, in_logit: Tensor) -> Tensor:
        """log((c − 1/K)/(1 − c)) for the confidence c, from the classifier's logits and g + Δ."""
        return confidence_logit(logits, in_logit)

    def capped(self, in_logit: Tensor) -> Tensor:
        """The highest score that an image with this g + Δ may have, whatever the classifier says."""
        return in_logit

    def classified(self, logits: Tensor, in_logit: Tensor) -> Tensor:
        """The logits that Eq. 3 takes for the classifier's: its own."""
        return logits

    def in_logit(self, images: Tensor) -> Tensor:
        """g(x) + Δ, the logit of p(in-distribution | x), in arithmetic that certificates cover."""
        return self.discriminator.covered(images) + self.shift

    def forward(self, images: Tensor) -> Tensor:
        logits, in_logit = self.logits(images), self.in_logit(images)
        fused, order = fuse(self.classified(logits, in_logit), in_logit), logits.argsort(1)
        # Without the inversions that rounding makes, by a unit in the last place, among near ties.
        return torch.empty_like(fused).scatter(1, order, fused.gather(1, order).cummax(1).values)

    def log_probabilities(self, images: Tensor) -> Tensor:
        """log p(y|x), shape (N, K)."""
        relative: Tensor = self(images)
        return relative - math.log(relative.shape[1])

    def confidence(self, images: Tensor) -> Tensor:
        """max_y p(y|x) in float64, from its logit: so it never exceeds the cap of the same g, nor leaves [1/K, 1]."""
        logits = self.logits(images)
        check_logits(logits)
        found = confidence_of(self.scored(logits, self.in_logit(images)), logits.shape[1])
        if found.isnan().any():
            raise Diverged("the model's confidence is NaN: check the weights for NaN, infinity and huge values")
        return found

    def predict(self, images: Tensor) -> Tensor:
        """The most probable class. Fusion keeps the classifier's order, and asking it directly avoids ties."""
        logits = self.logits(images)
        check_logits(logits)
        return logits.argmax(1)

    def upper_bound(
        self, images: Tensor, eps: float | Tensor, *, threshold: float | None = None, **options: Unpack[bounds.Options]
    ) -> Tensor:
        """A bound of the confidence over the ball of radius eps inside [0, 1]^d (Eq. 4), in float64.

        `threshold` is a confidence: the methods "auto" and "bab" stop where the bound is below it.
        """
        with torch.no_grad():
            classes = self.logits(images[:1]).shape[1]
        of_g = None if threshold is None else self.g_at(score_below(threshold, classes))
        return confidence_bound(self.in_logit_bound(images, eps, threshold=of_g, **options), classes)

    def in_logit_bound(
        self, images: Tensor, eps: float | Tensor, *, threshold: float | None = None, **options: Unpack[bounds.Options]
    ) -> Tensor:
        """ḡ(x) + Δ; the sum is the one that `in_logit` makes, and rounding keeps the order."""
        return self.shifted(self.discriminator.upper_bound(images, eps, threshold=threshold, **options))

    def g_at(self, score: float) -> float:
        """The g from which a ball's score is bounded by `score`, up to rounding."""
        return score - self.shift.item()

    def p_in_at(self, threshold: float, classes: int) -> float:
        """The p(in) below which g alone rejects an image at this threshold of the confidence, up to rounding."""
        return logistic(self.g_at(score_at(threshold, classes)) + self.shift.item())

    def shifted(self, bound: Tensor) -> Tensor:
        """The bound of the score, ḡ + Δ, for bounds ḡ of the discriminator, however they were found."""
        bound = bound + self.shift
        # Where a processor flushes subnormal numbers to zero, a sum just below zero becomes zero.
        return torch.where((bound < 0) & (bound > -torch.finfo(bound.dtype).tiny), 0, bound)

    def certified_radius(
        self, images: Tensor, threshold: float, *, largest: float | None = None, **options: Unpack[bounds.Options]
    ) -> Tensor:
        """The largest radius at which the confidence provably stays below `threshold`, per image.

        NaN where the bound at the image itself does not: such an image is not rejected. It is searched up to `largest`,
        else up to all of [0, 1]^d.
        """
        bound = partial(self.upper_bound, threshold=threshold, **options)
        norm = options.get("norm", "linf")
        return bounds.certified_radius(bound, images, checked_threshold(threshold), norm=norm, largest=largest)

    def ceiling(self, classes: int) -> float:
        """The confidence that no input at all can exceed: (K−1)/K·σ(b + Δ) + 1/K, as g ≤ b everywhere."""
        return confidence_of(self.shifted(torch.tensor(self.discriminator.ceiling)), classes).item()


@architecture("prood")
def _joint(classifier: Spec, discriminator: Spec) -> nn.Module:
    return ProoD(build(classifier), build(discriminator))  # type: ignore[arg-type]  # another g is refused there
