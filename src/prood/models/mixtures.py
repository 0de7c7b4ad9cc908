"""Gaussian mixtures of the in- and the out-distribution, and the bounds of their ratio (Meinke and Hein, 2020).

The bounds are upper ones of g(x) = log p(x|in) − log p(x|out) over a ball, in the mixtures' metric or in the maximum
norm. With a and b the logs of the mixtures' terms, g = log Σ_k exp a_k − log Σ_l exp b_l. For any shares w of the terms
outside, log Σ_l exp b_l ≥ Σ_l w_l·b_l + H(w) (Gibbs), so g ≤ log Σ_k exp h_k with h_k = a_k − Σ_l w_l·b_l − H(w). Each
h_k is quadratic in u, and concave, as every Gaussian inside is narrower than every one outside. So its tangent at *any*
point lies above it, and the maximum of a tangent over a box is known. The point is found by ascent, where g is almost
largest and the tangent almost flat; that the bound holds does not depend on how well that went.
"""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood import bounds

GAP = 0.01
"""How far, in log σ, the widest Gaussian of the in-distribution stays below the narrowest of the out-distribution."""


class Mixture(nn.Module):
    """Σ_k α_k·N(z; c_k, σ_k²·I) in coordinates z; what σ_k is its owner says, from `spread`."""

    def __init__(self, components: int, dimension: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(components, dimension))
        self.log_weights = nn.Parameter(torch.zeros(components))  # not normalised
        self.spread = nn.Parameter(torch.zeros(components))

    def exponents(self, squares: Tensor, log_sigma: Tensor) -> Tensor:
        """log of each term at these squared distances, (N, components), but for the constant (2π)^(−d/2)."""
        constant = F.log_softmax(self.log_weights, 0) - self.centres.shape[1] * log_sigma
        return constant - 0.5 * squares * torch.exp(-2 * log_sigma)

    def squares(self, z: Tensor) -> Tensor:
        """‖z − c_k‖², (N, components)."""
        return (z.square().sum(1, keepdim=True) - 2 * (z @ self.centres.T) + self.centres.square().sum(1)).clamp_min(0)


class MixtureRatio(nn.Module):
    """g(x) = log p(x|in) − log p(x|out) for two mixtures in one metric d(x, y) = ‖A(x − y)‖.

    Every σ of the in-distribution lies below every one of the out-distribution, by construction: so g → −∞ far away
    from all centres, in every direction.
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, dimension: int, components: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dimension))
        self.register_buffer("matrix", torch.eye(dimension))
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.inside = Mixture(components, dimension)
        self.outside = Mixture(components, dimension)

    def log_sigmas(self) -> tuple[Tensor, Tensor]:
        """log σ of both mixtures' Gaussians."""
        inside = self.log_scale - GAP / 2 - F.softplus(self.inside.spread)
        return inside, self.log_scale + GAP / 2 + F.softplus(self.outside.spread)

    def coordinates(self, images: Tensor) -> Tensor:
        return (images.flatten(1) - self.mean) @ self.matrix.T

    def terms(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithms of both mixtures' terms, (N, components) each."""
        # Half precision would drown the differences of distances.
        with torch.autocast(images.device.type, enabled=False):
            z = self.coordinates(images.to(self.mean.dtype))
            parts = zip((self.inside, self.outside), self.log_sigmas(), strict=True)
            inside, outside = (part.exponents(part.squares(z), log_sigma) for part, log_sigma in parts)
        return inside, outside

    def log_densities(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """log p(x|in) and log p(x|out), both but for the same constant."""
        inside, outside = self.terms(images)
        return inside.logsumexp(1), outside.logsumexp(1)

    def forward(self, images: Tensor) -> Tensor:
        inside, outside = self.log_densities(images)
        return inside - outside


def doubled(ratio: MixtureRatio) -> MixtureRatio:
    """The same numbers in float64, where g is deployed and bounded."""
    return copy.deepcopy(ratio).double().requires_grad_(False)


def metric_bound(ratio: MixtureRatio, images: Tensor, radius: float | Tensor) -> Tensor:
    """At least g(u) for every u with d(u, x) ≤ radius, in [0, 1]^d or not; (N,). `ratio` in float64.

    The paper's theorem: by the triangle inequality no centre inside is nearer than d − radius, none outside farther
    than d + radius.
    """
    far = torch.as_tensor(radius, dtype=torch.float64, device=images.device)
    z = ratio.coordinates(images.double())
    ends = []
    for part, log_sigma, sign in zip((ratio.inside, ratio.outside), ratio.log_sigmas(), (-1, 1), strict=True):
        # Not by ‖z‖² − 2·z·c + ‖c‖², whose error near a centre is small for a square, but not for its root.
        exact = torch.cdist(z, part.centres, compute_mode="donot_use_mm_for_euclid_dist")
        distances = exact + sign * far[..., None]
        ends.append(part.exponents(distances.clamp_min(0).square(), log_sigma).logsumexp(1))
    shortest = torch.linalg.matrix_norm(ratio.matrix, -2)  # what a step of length 1 counts at least
    reach = images.double().flatten(1).sub(ratio.mean).norm(dim=1) + 1.01 * far / shortest
    return ends[0] - ends[1] + slack(ratio, reach)


def ball_bound(ratio: MixtureRatio, images: Tensor, eps: float | Tensor, *, steps: int = 100) -> Tensor:
    """At least g(u) for every u in [0, 1]^d with ‖u − x‖∞ ≤ eps; (N,) in float64. `ratio` in float64."""
    box = bounds.Box.sound_ball(images, eps)
    lower, upper = box.lower.double().flatten(1), box.upper.double().flatten(1)
    size = max(1, 2**24 // ratio.inside.centres.numel())  # images whose slopes, (N, components, d), are not too many
    parts = zip(torch.split(lower, size), torch.split(upper, size), strict=True)
    return torch.cat([_ball_bound(ratio, low, high, steps) for low, high in parts])


def _ball_bound(ratio: MixtureRatio, lower: Tensor, upper: Tensor, steps: int) -> Tensor:
    middle = 0.5 * (lower + upper)
    points = (middle, ascend(ratio, middle, lower, upper, steps))
    terms = torch.stack([_tangents(ratio, point, lower, upper) for point in points]).amin(0)
    reach = torch.maximum((lower - ratio.mean).abs(), (upper - ratio.mean).abs()).norm(dim=1)
    return terms.logsumexp(1) + slack(ratio, reach)


def ascend(ratio: MixtureRatio, start: Tensor, lower: Tensor, upper: Tensor, steps: int) -> Tensor:
    """A point of each box where g is large: accelerated projected gradient ascent."""
    inside, outside = ratio.log_sigmas()
    # AᵀA lies below the diagonal matrix of its rows' absolute sums: a step length for each pixel that never overshoots.
    rate = 1 / ((ratio.matrix.T @ ratio.matrix).abs().sum(1) * torch.exp(-2 * inside.min())).clamp_min(1e-300)
    point = ahead = start
    for step in range(steps):
        a, b = ratio.terms(ahead)
        z = ratio.coordinates(ahead)
        slope = _pull(ratio.inside, a, inside, z) - _pull(ratio.outside, b, outside, z)
        moved = torch.clamp(ahead + rate * (slope @ ratio.matrix), lower, upper)
        ahead = torch.clamp(moved + step / (step + 3) * (moved - point), lower, upper)
        point = moved
    return point


def _pull(part: Mixture, terms: Tensor, log_sigma: Tensor, z: Tensor) -> Tensor:
    """The gradient of a mixture's log density, in its coordinates."""
    weights = terms.softmax(1) * torch.exp(-2 * log_sigma)
    return weights @ part.centres - weights.sum(1, keepdim=True) * z


def _tangents(ratio: MixtureRatio, point: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """For each k the maximum over the box of the tangent of h_k at `point`, for shares w that fit there; (N, k)."""
    sigma_in, sigma_out = ratio.log_sigmas()
    a, b = ratio.terms(point)
    z = ratio.coordinates(point)
    ups = (ratio.inside.centres - z[:, None]) * torch.exp(-2 * sigma_in)[:, None]
    down = _pull(ratio.outside, b, sigma_out, z)
    slopes = (ups - down[:, None]) @ ratio.matrix
    gain = torch.where(slopes > 0, slopes * (upper - point)[:, None], slopes * (lower - point)[:, None]).sum(2)
    return a - b.logsumexp(1, keepdim=True) + gain  # at the point itself, w·b + H(w) is the whole logarithm


def slack(ratio: MixtureRatio, reach: Tensor) -> Tensor:
    """What rounding in float64 may add: to g where it is deployed, and to our bound; (N,).

    `reach` bounds ‖u − mean‖. Then ‖A(u − mean)‖ ≤ ‖A‖·reach, each of its sums is off by at most γ of the sum of its
    terms' sizes, and so is each exponent, by γ times the largest squared distance over σ². There are four of these
    (two terms; there and here), as many again for a tangent's gradient and its maximum, and a factor of four to spare.
    """
    dimension = ratio.matrix.shape[0]
    gamma = 2 * (dimension + 16) * 2.0**-53
    inside, outside = ratio.log_sigmas()
    centres = torch.cat([ratio.inside.centres, ratio.outside.centres]).norm(dim=1).amax()
    farthest = torch.linalg.matrix_norm(ratio.matrix) * reach + centres
    weights = torch.cat([part.log_weights.log_softmax(0) for part in (ratio.inside, ratio.outside)]).abs().amax()
    logs = dimension * torch.cat([inside, outside]).abs().amax() + weights + math.log(len(ratio.inside.centres))
    room: Tensor = 32 * gamma * (farthest.square() * torch.exp(-2 * inside.min()) + logs)
    return room
