"""clean ≤ attacked ≤ certified, for every image that is ever evaluated."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prood.atomic import replacing
from prood.errors import ProodError
from prood.models import Score

VIOLATION_FILE = "violation.npz"
_SLACK = 1e-9  # relative, for float64 arithmetic


class BoundViolated(ProodError):
    """A point with a score above the certified bound was found: there is a bug in a bound."""


def confirm(
    score: Score, images: Tensor, points: Tensor, found: Tensor, certified: Tensor, eps: float, folder: Path | None
) -> Tensor:
    """The certified bounds, after a check that no score found in the balls exceeds them.

    The bounds are those of exact arithmetic, while scores are computed in float32: a tight bound may be exceeded by a
    rounding error. So whatever exceeds its bound is computed again, both score and bound, in float64. If the bound
    holds there, it was rounding, and the bound becomes the score that was found. If not, the bound is wrong: its input
    is saved and the evaluation stops.
    """
    exceeds = (found > certified).nonzero().squeeze(1).cpu()
    if not len(exceeds):
        return certified
    exact = copy.deepcopy(score)
    exact.model = exact.model.cpu().double()
    centres, corners = (values[exceeds.to(values.device)].cpu().double() for values in (images, points))
    scores, bounds = exact(corners), exact.upper_bound(centres, eps)
    wrong = scores > bounds + _SLACK * bounds.abs().clamp_min(1)
    if wrong.any():
        file = (folder or Path()) / VIOLATION_FILE
        save = {"images": centres, "points": corners, "scores": scores, "bounds": bounds}
        _save(file, {name: values[wrong].numpy() for name, values in save.items()} | {"eps": np.float64(eps)})
        raise BoundViolated(
            f"a score of {scores[wrong][0].item():.9g} was found where the certified bound is "
            f"{bounds[wrong][0].item():.9g}: there is a bug in a bound; report it with the input saved in {file}"
        )
    return torch.maximum(certified, found)


def _save(file: Path, arrays: dict[str, Any]) -> None:
    with replacing(file) as aside, aside.open("wb") as opened:
        np.savez(opened, **arrays)
