"""Gaussian mixtures of the in- and the out-distribution, and the bounds of their ratio (Meinke and Hein, 2020)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        products = z @ self.centres.T
        return (z.square().sum(1, keepdim=True) - 2 * products + self.centres.square().sum(1)).clamp_min(0)


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
