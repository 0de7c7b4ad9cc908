"""What a model says far away from all data (App. A of the paper): along x + α·n for random directions n."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prood.data import ImageSet, generator
from prood.errors import BadValue, UnknownName
from prood.evaluation.metrics import auc
from prood.models import Discriminator, Score, score_of

ALPHAS = (0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0)
"""How far to go; n lies in [−0.5, 0.5]^d, so that α = 1 is as far as pixels go."""
CURVE = tuple(float(f"{10 ** (exponent / 4 - 1):.3g}") for exponent in range(25))
"""25 distances from 0.1 to 100,000, evenly on a logarithmic scale: for a figure."""
TRAJECTORIES = 100
LARGEST = 2**30
"""Numbers of all directions that are drawn at once: 4 GiB."""

KINDS = ("uniform", "gaussian")
"""Uniform in [−0.5, 0.5]^d as in the paper's appendix, or Gaussian: no axis is preferred."""


@dataclass(frozen=True)
class Far:
    """Along trajectories that leave the data: a number for each of `alphas`.

    `confidence` is the mean over the trajectories of the largest probability of a class, None for a model that does not
    classify. `auc` says how well the score tells points that far away from the in-distribution.
    """

    alphas: tuple[float, ...]
    trajectories: int
    auc: tuple[float, ...]
    confidence: tuple[float, ...] | None
    classes: int | None


@torch.no_grad()
def far_away(
    model: nn.Module | Score,
    inside: ImageSet,
    outside: ImageSet,
    *,
    alphas: Sequence[float] = ALPHAS,
    trajectories: int = TRAJECTORIES,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Far:
    """Follow x + α·n for images x of `outside`, one uniform direction n ∈ [−0.5, 0.5]^d for each.

    A ReLU network is affine far out, and its confidence goes to 1 in almost every direction (Hein et al., 2019).
    """
    score = model if isinstance(model, Score) else score_of(model)
    images, directions = _trajectories(score, outside, alphas, trajectories, seed, device)
    rows = torch.split(torch.arange(len(inside)), 250)
    inside_scores = torch.cat([score(inside.floats(part).to(device)).double() for part in rows]).cpu()
    classes = None if score.logits(images[:1]) is None else score.model(images[:1]).shape[1]
    places = [images + alpha * directions for alpha in alphas]
    apart = tuple(auc(inside_scores, score(points).double().cpu()) for points in places)
    sure = tuple(confidence(score.model, points).mean().item() for points in places) if classes else None
    return Far(tuple(map(float, alphas)), len(images), apart, sure, classes)


@torch.no_grad()
def mean_confidence(
    model: nn.Module,
    outside: ImageSet,
    *,
    alphas: Sequence[float] = CURVE,
    trajectories: int = TRAJECTORIES,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> tuple[float, ...]:
    """The mean over the same trajectories of the largest probability of a class; of p(in | x) for a discriminator."""
    images, directions = _trajectories(score_of(model), outside, alphas, trajectories, seed, device)
    return tuple(confidence(model, images + alpha * directions).mean().item() for alpha in alphas)


def confidence(model: nn.Module, images: Tensor) -> Tensor:
    """How sure a model is, in float64: max p(y | x) of a classifier, p(in | x) of a discriminator."""
    if isinstance(model, Discriminator):
        return model.covered(images).double().sigmoid()
    logits: Tensor = model(images)
    return logits.double().softmax(1).amax(1)


def _trajectories(
    score: Score, outside: ImageSet, alphas: Sequence[float], count: int, seed: int, device: str | torch.device
) -> tuple[Tensor, Tensor]:
    """Where they start, and a direction for each."""
    if not alphas or count < 1:
        raise BadValue("far away needs at least one distance and one trajectory")
    score.model.to(device).eval()
    chosen = outside.subset(count, seed)
    images = chosen.floats(range(len(chosen))).to(device)
    return images, random_directions(len(images), images.shape[1:], seed=seed).to(device)


def random_directions(count: int, shape: tuple[int, ...], kind: str = "uniform", seed: int = 0) -> Tensor:
    """`count` random directions for images of this shape, in float32; determined by the seed."""
    if kind not in KINDS:
        raise UnknownName(f"unknown kind of directions {kind!r}: choose one of {', '.join(KINDS)}")
    if count < 1:
        raise BadValue(f"at least one direction is needed, not {count}")
    if count * math.prod(shape) > LARGEST:
        raise BadValue(f"{count:,} directions do not fit in memory: choose at most {LARGEST // math.prod(shape):,}")
    random = generator(seed, 0, 0)
    size = (count, *shape)
    return torch.rand(size, generator=random) - 0.5 if kind == "uniform" else torch.randn(size, generator=random)
