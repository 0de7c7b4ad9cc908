"""Does g tell anything apart? A discriminator whose training collapsed has one value for all images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prood.models.discriminators import Discriminator

SPREAD = 1e-3
"""A smaller standard deviation of g is none: untrained networks have 0.1 and more."""
ADVICE = "a longer eps_ramp and kappa_ramp, a smaller learning rate"


def constant(model: nn.Module) -> str | None:
    """One sentence, if g of this discriminator or joint model is equal on all `patterns`, or None."""
    g = model if isinstance(model, Discriminator) else getattr(model, "discriminator", None)
    if not isinstance(g, Discriminator) or not hasattr(g, "architecture"):  # else of unknown image shape
        return None
    weight = next(g.parameters())
    with torch.no_grad():
        values = g(patterns(g.image).to(weight.device, weight.dtype)).double()
    if values.std() > SPREAD:
        return None
    return collapsed(f"g = {values.mean():.3g} on flat, smooth and noisy images alike")


def collapsed(facts: str, change: str = ADVICE) -> str:
    """What is said about a constant g, wherever it is met."""
    return f"the discriminator has gone constant ({facts}), so it rejects every image or none: train it with {change}"


def patterns(shape: tuple[int, int, int]) -> Tensor:
    """28 images in [0, 1] of very different kinds, always the same ones."""
    source = torch.Generator().manual_seed(0)
    flat = torch.linspace(0, 1, 4)[:, None, None, None].expand(4, *shape)
    noise = torch.rand((8, *shape), generator=source)
    coarse = (torch.rand((8, shape[0], side, side), generator=source) for side in (3, 8))
    smooth = [F.interpolate(one, shape[1:], mode="bilinear") for one in coarse]
    return torch.cat([flat, noise, *smooth])
