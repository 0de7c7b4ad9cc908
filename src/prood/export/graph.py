"""The joint model and its bound as one module from images and eps to the four outputs of the file."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from prood.export.proof import Proof, deployed_layer, layers_of, proof_layer
from prood.models import ProoD
from prood.models.confidence import confidence_bound
from prood.models.discriminators import beyond_images

INPUTS = ("images", "eps")
OUTPUTS = ("probabilities", "p_in", "confidence", "upper_bound")

ROOM = 2.0**-40
"""What exponentials of the runtime, and the few operations around them, may be off, relative to their values."""

_TINY = 2.0**-126
"""Numbers below are subnormal in float32, and some processors take them for zero."""


class Graph(nn.Module):
    """Images (N, C, H, W), the classifier's logits (N, K) and eps → the outputs, one row for each image."""

    shift: Tensor

    def __init__(self, model: ProoD) -> None:
        super().__init__()
        layers = layers_of(model.discriminator)
        self.discriminator = nn.Sequential(*map(deployed_layer, layers))
        self.proof = Proof(nn.Sequential(*map(proof_layer, layers)))
        self.register_buffer("shift", model.shift.detach().double())
        self.guard = model.discriminator.guard

    def forward(self, images: Tensor, logits: Tensor, eps: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        logits = logits.double()
        # In float64 from here on: an addition in float32 could be merged into the network's last sum.
        g = self.discriminator(images).flatten().double() + self.shift
        if self.guard:  # nothing on images, which is what the proof is about
            g = g - self.guard * beyond_images(images.double())
        inside, outside = sigmoid(g)[:, None], sigmoid(-g)[:, None]
        classes = logits.shape[1]
        exact = torch.softmax(logits, 1) * inside + outside * (1 / classes)
        confidence = exact.amax(1).clamp(max=1)
        upper_bound = confidence_bound(self.in_logit_bound(images, eps), classes, sigmoid, ROOM)
        proven = ((images >= 0) & (images <= 1)).flatten(1).all(1) & (eps >= 0)  # false for NaN
        upper_bound = torch.where(proven, upper_bound, 1.0)
        return in_order_of(logits, exact), inside[:, 0], confidence, upper_bound

    def in_logit_bound(self, images: Tensor, eps: Tensor) -> Tensor:
        """ḡ(x) + Δ, whether the sum is made in float64, as here, or in float32, as in torch."""
        # The file holds each weight once, in float32; their float64 twins are casts.
        wide = {name: value.double() for name, value in (*self.proof.named_parameters(), *self.proof.named_buffers())}
        bound: Tensor = functional_call(self.proof, wide, (images, eps)) + self.shift
        bound = torch.maximum(bound, bound.float().double())
        return torch.where((bound < 0) & (bound > -_TINY), 0.0, bound)


def sigmoid(x: Tensor) -> Tensor:
    """σ(x) with all its digits, however small: that of the runtime is 1 − σ(−x) below zero, and 0 from −37 on."""
    small = torch.exp(-x.abs())
    return torch.where(x < 0, small, 1.0) / (1 + small)


def in_order_of(logits: Tensor, exact: Tensor) -> Tensor:
    """The probabilities in float32, with the classifier's class strictly on top.

    Far from the data they all round to 1/K. Two units in the last place then tell which class it is.
    """
    values = exact.float()
    top = torch.arange(logits.shape[1], device=logits.device) == logits.argmax(1, keepdim=True)
    others = torch.where(top, 0.0, values).amax(1, keepdim=True)
    return torch.where(top, torch.maximum(values, others * (1 + 2.0**-22)), values)
