"""What a discriminator is worth: clean and proven, on sets that it was not trained on."""

from __future__ import annotations

from typing import Any

import torch

from prood.data import ImageSet
from prood.evaluation.metrics import auc, fpr
from prood.models import Discriminator

ACCEPTED = (0.95, 0.9, 0.8)
HIGH = 8 / 255


def judge(
    model: Discriminator,
    sets: dict[str, ImageSet],
    radii: list[float],
    device: torch.device,
    *,
    method: str,
    arithmetic: str,
    rows: int = 250,
) -> dict[str, Any]:
    """The first set is the in-distribution. AUC, and for each radius GAUC and the share provably rejected at each
    share accepted, for each set.

    `clean` are the shares rejected without any change of the images.
    """
    model.eval()

    def clean(images: ImageSet) -> torch.Tensor:
        parts = torch.arange(len(images)).split(1000)
        return torch.cat([model.covered(images.floats(part).to(device)).cpu() for part in parts])

    def proven(images: ImageSet, eps: float) -> torch.Tensor:
        parts = torch.arange(len(images)).split(rows)
        options: dict[str, Any] = {"method": method, "arithmetic": arithmetic}
        return torch.cat([model.upper_bound(images.floats(part).to(device), eps, **options).cpu() for part in parts])

    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.no_grad():
            first = next(iter(sets))
            inside = clean(sets[first])
            found: dict[str, Any] = {}
            for name, images in sets.items():
                if name == first:
                    continue
                scores = clean(images)
                row: dict[str, Any] = {"images": len(images), "auc": _short(auc(inside, scores))}
                row["clean"] = [_short(1 - fpr(inside, scores, share)) for share in ACCEPTED]
                row["at"] = {}
                for eps in radii:
                    bound = torch.maximum(proven(images, eps), scores)
                    row["at"][f"{eps:.6g}"] = {
                        "gauc": _short(auc(inside, bound)),
                        "rejected": [_short(1 - fpr(inside, bound, share)) for share in ACCEPTED],
                    }
                found[name] = row
    finally:
        torch.backends.cudnn.allow_tf32 = tf32
    return found


def _short(value: float) -> float:
    return round(value, 5)
