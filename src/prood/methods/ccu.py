"""CCU: mixtures that know where the data is (Meinke and Hein, 2020, *Towards neural networks that provably know when
they don't know*)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prood import processes
from prood.data import Images
from prood.errors import BadValue
from prood.methods.base import Batch, Loss, Objective, Step, interlace, separate
from prood.methods.declaring import option, register
from prood.methods.prood import joint_losses
from prood.models import build
from prood.models.architectures import Spec
from prood.models.mixture_classifier import MixtureClassifier, MixtureConfidence
from prood.models.mixtures import GAP, Mixture, MixtureRatio


@register
@dataclass(frozen=True)
class CCU(Objective):
    """−log p(y|x) − weight · 1/K Σ_l log p(l|z) − likelihood/d · ( log p(x) + weight · log p(z) ).

    p(y|x) comes from `models.MixtureClassifier`, p(x) = ½·p(x|in) + ½·p(x|out) the mixtures' density on d pixel values,
    and the score is the confidence. Before training, the metric becomes the one of the in-distribution's covariance,
    eigenvalues below `floor` times the largest raised to that, and the mixtures start from a clustering. The paper
    does not divide log p(x) by d: we do, so that its gradients have the size of the others'.
    """

    name = "ccu"
    title = "CCU"
    summary = "a classifier with Gaussian mixtures of both distributions, sure to be unsure far away"
    score = MixtureConfidence

    weight: float = option(1.0, "weight of the out-distribution's losses")
    likelihood: float = option(1.0, "weight of the mixtures' log-likelihood, per pixel value")
    components: int = option(100, "Gaussians in each of the two mixtures", low=1)
    floor: float = option(1e-6, "minimum of the metric's eigenvalues, as a share of the largest", high=1, above=True)
    fit_images: int = option(10000, "images per set to which metric and mixtures are fitted at first", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fit_images < self.components:
            raise BadValue(f"components = {self.components} must be at most fit_images = {self.fit_images}")

    def network(self, spec: Spec, inside: Images, outside: Images | None) -> nn.Module:
        return MixtureClassifier(build(spec), MixtureRatio(math.prod(inside.shape), self.components))

    @torch.no_grad()
    def prepare(self, model: nn.Module, batches: Callable[[int], tuple[Batch, Batch | None]]) -> None:
        assert isinstance(model, MixtureClassifier)
        pairs = [batches(0)]
        steps = math.ceil(self.fit_images / len(pairs[0][0].images))
        pairs += [batches(step) for step in range(1, steps)]
        inside = torch.cat([batch.images.flatten(1) for batch, _ in pairs]).double()
        outside = torch.cat([batch.images.flatten(1) for _, batch in pairs if batch is not None]).double()
        fit_mixtures(model.ratio, inside, outside, self.floor)
        for value in model.ratio.state_dict().values():  # every process saw its own rows; all take the first one's
            value.copy_(processes.total(value * processes.is_main()))

    def __call__(self, model: MixtureClassifier, batch_in: Batch, batch_out: Batch, step: Step) -> Loss:
        images = interlace(batch_in.images, batch_out.images)
        density_in, density_out = model.ratio.log_densities(images)
        g = density_in - density_out
        loss_in, loss_out, logs = joint_losses(model.logits(images).to(g.dtype), g, batch_in)
        half_pi = 0.5 * math.log(2 * math.pi)  # of the density in the metric's coordinates, per dimension
        density = (torch.logaddexp(density_in, density_out) - math.log(2)) / images[0].numel() - half_pi
        unlikely_in, unlikely_out = (-part.mean() for part in separate(density))
        loss = loss_in + self.weight * loss_out + self.likelihood * (unlikely_in + self.weight * unlikely_out)
        g_in, g_out = separate(g)
        logs |= {"unlikely_in": unlikely_in, "unlikely_out": unlikely_out, "g_in": g_in.mean(), "g_out": g_out.mean()}
        return loss, logs


def fit_mixtures(ratio: MixtureRatio, inside: Tensor, outside: Tensor, floor: float) -> None:
    """Metric and mixtures from flat images in float64."""
    mean = inside.mean(0)
    values, vectors = torch.linalg.eigh((inside - mean).T @ (inside - mean) / len(inside))
    values = values.clamp_min(floor * values.amax())
    ratio.mean.copy_(mean)
    ratio.matrix.copy_(vectors.T / values.sqrt()[:, None])
    sets = (ratio.inside, inside), (ratio.outside, outside)
    narrow, wide = (_cluster(part, (images - mean) @ ratio.matrix.double().T).log() for part, images in sets)
    # All σ inside below all σ outside: the scale that separates them, and how far each is from it.
    scale = 0.5 * (narrow.mean() + wide.mean())
    ratio.log_scale.copy_(scale)
    for part, distance in ((ratio.inside, scale - narrow), (ratio.outside, wide - scale)):
        # The x with log(1 + eˣ) = distance − GAP/2; what is not above zero becomes a thousandth.
        part.spread.copy_(torch.log(torch.expm1((distance - GAP / 2).clamp_min(1e-3))))


def _cluster(part: Mixture, points: Tensor) -> Tensor:
    """Lloyd's clustering from the first points; the σ of each cluster, for spherical Gaussians."""
    count, dimension = part.centres.shape
    centres = points[:count].clone()
    for _ in range(20):
        nearest = torch.cdist(points, centres).argmin(1)
        sizes = nearest.bincount(minlength=count)
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp_min(1)[:, None], centres)
    nearest = torch.cdist(points, centres).argmin(1)
    squares = (points - centres[nearest]).square().sum(1)
    sizes = nearest.bincount(minlength=count)
    within = torch.zeros(count, dtype=points.dtype, device=points.device).index_add_(0, nearest, squares)
    overall = within.sum() / len(points)
    # A cluster of few points has hardly any spread of its own: it gets ten more with the spread of all points.
    variance = (within + 10 * overall) / (sizes + 10) / dimension
    part.centres.copy_(centres)
    part.log_weights.copy_(((sizes + 1) / (len(points) + count)).log())
    return variance.sqrt()
