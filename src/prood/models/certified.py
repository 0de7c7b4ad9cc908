"""A classifier whose own confidence is certified, by bounds of all differences of logits (Bitterwolf et al., 2020)."""

import copy
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood import bounds
from prood.bounds.arithmetic import check_deployed
from prood.bounds.box import widen
from prood.bounds.certificate import check_options
from prood.bounds.concrete import maximum
from prood.errors import Unsupported
from prood.models.architectures import architecture
from prood.models.confidence import confidence_bound
from prood.models.discriminators import IMAGE
from prood.models.joint import TINY
from prood.models.score import OfLogits, scores
from prood.models.sizes import CLASSIFIER_SIZES, Numbers, layers_of


class CertifiedClassifier(nn.Module):
    """A Sequential of layers with bound rules that ends in a linear layer; calling it returns logits."""

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        if len(network) < 2 or type(network[-1]) is not nn.Linear:
            raise Unsupported("a certified classifier must end in nn.Linear: its rows' differences are what is bounded")
        self.body, self.last = nn.Sequential(*list(network)[:-1]), network[-1]

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.last(self.body(images))
        return logits

    def covered(self, images: Tensor) -> Tensor:
        """The logits in arithmetic that certificates cover, whatever the settings for GPUs are."""
        with bounds.strict(images.device):
            logits: Tensor = self(images)
        return logits

    def differences(self, hidden: bounds.Box) -> Tensor:
        """For training: interval bounds of all f_k − f_l from a box behind the body; (N, K, K), differentiable.

        The last layer is merged with the difference, (w_k − w_l)·h: twice its bound of a logit would be far more.
        """
        centre = widen(self.last(hidden.middle))
        rows = (self.last.weight[:, None] - self.last.weight).abs().flatten(0, 1)
        radius = widen(F.linear(hidden.radius, rows)).reshape(len(centre), -1, centre.shape[1])
        return centre[:, :, None] - centre[:, None] + radius

    @torch.no_grad()
    def difference_bounds(
        self, images: Tensor, eps: float | Tensor, **options: Unpack[bounds.Options]
    ) -> tuple[Tensor, Tensor]:
        """At least f_k(u) − f_l(u) for every u in the ball inside [0, 1]^d: (N, K, K), and a bound of all |f|: (N,).

        By intervals with the last layer merged (`method="ibp"`, GOOD's own), by planes that are passed back to the
        image ("crown-ibp"), or the smaller of both, which is also what the tighter methods give here. Sound arithmetic
        covers the rounding of f_k and of f_l, each by itself. A ball of another norm lies inside the ball of the
        maximum norm.
        """
        check_options(eps, **options)
        sound = options.get("arithmetic", "sound") == "sound"
        network: CertifiedClassifier = self
        if sound:
            check_deployed(self, images)
            box = bounds.Box.sound_ball(images, eps).double()
            network = copy.deepcopy(self).double()  # where our own rounding does not count
        else:
            box = replace(bounds.Box.ball(images, eps, points=images.clamp(0, 1)), anchored=True)
        with bounds.strict(images.device) if sound else nullcontext():
            return network._difference_bounds(box, options.get("method", "best"))

    def _difference_bounds(self, box: bounds.Box, method: bounds.Method) -> tuple[Tensor, Tensor]:
        linear = method != "ibp"
        hidden, pull_body = bounds.relax(self.body, box) if linear else (bounds.interval(self.body, box), None)
        output, pull_last = bounds.relax(self.last, hidden)
        count, classes = output.radius.shape
        one_hot = torch.eye(classes, dtype=output.radius.dtype, device=output.radius.device)
        first, second = (one_hot == 0).nonzero().T
        signs = one_hot[first] - one_hot[second]
        found = torch.empty(count * len(signs), dtype=torch.float64, device=signs.device)
        size = 512 if linear else max(1, 2**24 // hidden.radius[0].numel())  # planes that are passed back at once
        for rows in torch.split(torch.arange(len(found), device=signs.device), size):
            slope = signs[rows % len(signs)]
            plane = pull_last(bounds.Plane(slope, torch.zeros_like(slope[:, 0]), owner=rows // len(signs)))
            bound = maximum(hidden, plane)
            if pull_body is not None:
                ways = [maximum(box, pull_body(replace(plane, middle=middle))) for middle in (False, True)]
                backward = torch.minimum(*ways)
                bound = backward if method == "crown-ibp" else torch.minimum(bound, backward)
            found[rows] = bound.double()
        result = torch.zeros(count, classes, classes, dtype=torch.float64, device=signs.device)
        result[:, first, second] = torch.where(found.isnan(), torch.inf, found).reshape(count, -1)
        if output.overflow is not None:
            result = torch.where(output.overflow[:, None, None], torch.inf, result)
        return result, output.size.double().amax(1)

    def upper_bound(self, images: Tensor, eps: float | Tensor, **options: Unpack[bounds.Options]) -> Tensor:
        """A bound of the confidence max_k p(k|u) over the ball, in float64."""
        bound = confidence_logit_bound(*self.difference_bounds(images, eps, **options))
        return confidence_bound(bound, self.last.out_features, room=2.0**-44)


def confidence_logit_bound(differences: Tensor, size: Tensor) -> Tensor:
    """A bound of `confidence_logit` from bounds D of all differences and one of |f|; (N,).

    If k is the most probable class, c ≤ 1/(1 + S) with S = Σ_{l≠k} exp(−D_kl), and log((c − 1/K)/(1 − c)) is
    log(K − 1 − S) − log K − log S. Which class it is nobody knows: so the largest of them.
    """
    classes = differences.shape[1]
    own = torch.eye(classes, dtype=torch.bool, device=differences.device)
    log_missing = torch.where(own, -torch.inf, -differences).logsumexp(2)
    excess = (-torch.expm1(-differences)).sum(2).clamp_min(TINY)  # K − 1 − S: the diagonal is zero
    bound = (excess.log() - math.log(classes) - log_missing).amax(1)
    # The score and this are computed in float64, from logits of this size: some roundings of either.
    room = (classes + 256) * 2.0**-52 * (4 + size + bound.abs())
    return torch.where(bound.isfinite() & room.isfinite(), bound + room, torch.inf)


@scores(CertifiedClassifier)
class CertifiedConfidence(OfLogits):
    """The classifier's confidence as log((c − 1/K)/(1 − c)), in arithmetic that its certificate covers."""

    model: CertifiedClassifier

    def logits(self, images: Tensor) -> Tensor:
        return self.model.covered(images)

    def upper_bound(self, images: Tensor, eps: float | Tensor, **options: Unpack[bounds.Options]) -> Tensor:
        return confidence_logit_bound(*self.model.difference_bounds(images, eps, **options))


@architecture("certified-classifier")
def certified_classifier(
    classes: int = 10, size: str = "XL", *, image: Sequence[int] = IMAGE, mean: Numbers = None, std: Numbers = None
) -> CertifiedClassifier:
    """A certified classifier of a named size (see `prood.models.sizes`) for images (channels, height, width)."""
    layers, features = layers_of("classifier", CLASSIFIER_SIZES, size, image, mean, std)
    return CertifiedClassifier(nn.Sequential(*layers, nn.Linear(features, classes)))
