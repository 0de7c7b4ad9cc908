"""The curve of a `Fusion`, fitted on held-back images: the highest GAUC at the AUC one asks for (docs/fusion.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from operator import itemgetter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prood.bounds import Method
from prood.data import ImageSet
from prood.errors import BadValue, Unsupported
from prood.evaluation import EvaluateOptions, auc
from prood.evaluation.bench import CERTIFIED, Bench
from prood.models import Confidence, Curve, Discriminator, InLogit

Floats = NDArray[np.float64]
JointScore = Callable[[Tensor, Tensor], Tensor]

SHIFTS = tuple(float(shift) for shift in np.arange(-8, 12.01, 0.25))
"""Where a fit looks for the single shift that it starts from: a trained model may be shifted afterwards, and down."""

TRUST = 4e-3
"""So much GAUC an offset that is larger by 1 is worth: less than the standard error of an AUC on a thousand images.
Where the images leave it open, as where all AUCs are 1, the curve that listens more to the classifier is taken: it
knows more of images unlike those of the fit."""


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

    def measure(self, score: JointScore) -> tuple[float, float]:
        """AUC and GAUC of a score that grows with s and g: its certificate is that of s = ∞ and ḡ."""
        inside = score(self.s_in, self.g_in)
        sure = torch.full_like(self.bound_out, torch.inf)
        return auc(inside, score(self.s_out, self.g_out)), auc(inside, score(sure, self.bound_out))

    @property
    def classifier_auc(self) -> float:
        return auc(self.s_in, self.s_out)

    @property
    def ceiling(self) -> float:
        """The GAUC of g alone, which no joint score that is bounded through g exceeds."""
        return auc(self.g_in, self.bound_out)


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
    bench = Bench(known, EvaluateOptions(device=place, batch=250))
    certified = Bench(known, EvaluateOptions(device=place, batch=CERTIFIED if place.type == "cpu" else 250))
    with torch.no_grad():
        inner = bench.over(inside, sure), bench.over(inside, known)
        found = {}
        for name, images in outsides.items():
            bounds = certified.over(images, lambda some: known.upper_bound(some, eps, method=method))
            found[name] = Pairs(*inner, bench.over(images, sure), bench.over(images, known), bounds)
        return found


@dataclass(frozen=True)
class FitOptions:
    """How long the search for a curve is, and how its random directions are drawn."""

    starts: int = 6  # so many of the best places of the grid are tried
    directions: int = 12  # random ones, beside those of the axes
    smallest: float = 0.02  # the search ends when its step is below this, or after so many
    steps: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.starts, self.steps) < 1 or self.directions < 0 or not 0 < self.smallest < 1:
            raise BadValue("a fusion's fit needs a start and a step or more, and a smallest step between 0 and 1")


@dataclass(frozen=True)
class Fitted:
    """A curve, and what it reaches on the images that it was fitted on."""

    curve: Curve
    auc: float
    gauc: float


def best_shift(sample: Pairs, least_auc: float, shifts: Iterable[float] = SHIFTS) -> Fitted:
    """Of single shifts the best with this AUC or more, by GAUC and `TRUST`; without one, that with the highest AUC."""
    return max((_fitted(sample, Curve.shifted(shift)) for shift in shifts), key=lambda one: _rank(one, least_auc))


def fit_fusion(sample: Pairs, least_auc: float, options: FitOptions | None = None) -> Fitted:
    """The best curve found with an AUC of `least_auc` or more, by GAUC and `TRUST`; without one, the highest AUC.

    A search without derivatives on the exact, stepwise AUCs: from the best single shift and the best places of a grid
    it goes to the best neighbour along the axes and along random directions, and halves its step where none is better.
    Every accepted curve ranks above the one before, so on these images no single shift of `SHIFTS` ranks above it.
    """
    options = options or FitOptions()
    space = _Space.of(sample)

    def rank(place: Floats) -> tuple[float, float]:
        return _rank(_fitted(sample, space.curve(place)), least_auc)

    single = space.place(best_shift(sample, least_auc).curve)
    grid = sorted(space.grid(), key=rank, reverse=True)[: options.starts]
    found = [_climb(rank, start, options) for start in (single, *grid)]
    return _fitted(sample, space.curve(max(found, key=rank)))


def _climb(rank: Callable[[Floats], tuple[float, float]], place: Floats, options: FitOptions) -> Floats:
    random = np.random.default_rng(options.seed)
    axes = np.eye(len(place))
    step, best = 1.0, rank(place)
    for _ in range(options.steps):
        if step < options.smallest:
            break
        drawn = random.normal(size=(options.directions, len(place))) / np.sqrt(len(place))
        near = [place + step * direction for direction in (*axes, *-axes, *drawn)]
        highest, where = max(((rank(one), one) for one in near), key=itemgetter(0))
        if highest > best:
            place, best = where, highest
        else:
            step /= 2
    return place


def _rank(one: Fitted, least_auc: float) -> tuple[float, float]:
    """Better is: nearer to the AUC that is asked for, and where that is reached, a higher GAUC."""
    return min(one.auc - least_auc, 0.0), one.gauc + TRUST * one.curve.offset


def _fitted(sample: Pairs, curve: Curve) -> Fitted:
    return Fitted(curve, *sample.measure(curve))


@dataclass(frozen=True)
class _Space:
    """Three numbers for the three of a curve, such that a step of 1 means about the same to all models, within limits.

    The sharpness by its logarithm, so that it stays positive; the level in units of the spread of g.
    """

    centre: float
    unit: float

    @classmethod
    def of(cls, sample: Pairs) -> _Space:
        values = torch.cat([sample.g_in, sample.bound_out]).numpy()  # of g alone, most may be at its ceiling
        low, high = np.quantile(values, (0.1, 0.9))
        if not 0 < high - low < np.inf:
            raise Unsupported("a fusion cannot be fitted: the discriminator tells nothing of these images")
        return cls(float(np.median(sample.g_in.numpy())), float(high - low) / 4)

    def curve(self, place: Floats) -> Curve:
        offset, sharpness, level = np.clip(place, (SHIFTS[0], -4, -50), (SHIFTS[-1], 4, 50)).tolist()
        numbers = offset, np.exp(sharpness), self.centre + level * self.unit
        return Curve(*(float(np.float32(number)) for number in numbers))  # as a model holds them

    def place(self, curve: Curve) -> Floats:
        return np.array([curve.offset, np.log(curve.sharpness), (curve.level - self.centre) / self.unit])

    @staticmethod
    def grid() -> list[Floats]:
        places = product(range(-6, 11), (0.7, 1.0, 2.0, 4.0), (-4.0, -2.0, -1.0, 0.0, 1.0))
        return [np.array([offset, np.log(sharpness), level]) for offset, sharpness, level in places]
