"""Accuracy, AUC and guaranteed AUC of any model that has a score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from prood.data import ImageSet
from prood.evaluation.metrics import auc
from prood.models import Discriminator, ProoD, score_of


@torch.no_grad()
def evaluate(
    model: nn.Module,
    *,
    inside: ImageSet,
    outside: Mapping[str, ImageSet],
    eps: float,
    batch: int = 250,
    device: str | torch.device = "cpu",
) -> dict[str, Any]:
    """`{"accuracy": …, "out": {name: {"auc": …, "gauc": …}}}`, fractions of 1.

    `gauc` compares the in-distribution scores with the certified upper bounds over the ℓ∞ ball of radius `eps`
    around each out-distribution image. A model without a certificate has 0, a bare discriminator no accuracy.
    """
    model = model.to(device).eval()
    score = score_of(model)

    def over(images: ImageSet, function: Callable[[Tensor], Tensor]) -> Tensor:
        rows = torch.split(torch.arange(len(images)), batch)
        return torch.cat([function(images.floats(part).to(device)).cpu() for part in rows])

    scores = over(inside, score)
    out = {}
    for name, images in outside.items():
        bound = over(images, lambda z: score.upper_bound(z, eps))
        out[name] = {"auc": auc(scores, over(images, score)), "gauc": auc(scores, bound)}
    accuracy = None
    if inside.labels is not None and not isinstance(model, Discriminator):
        classes = model.predict if isinstance(model, ProoD) else lambda x: model(x).argmax(1)
        accuracy = (over(inside, classes) == inside.labels).double().mean().item()
    return {"accuracy": accuracy, "out": out}
