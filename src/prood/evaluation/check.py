"""clean ≤ attacked ≤ certified, for every image that is ever evaluated."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from prood.atomic import replacing
from prood.errors import ProodError

VIOLATION_FILE = "violation.npz"


class BoundViolated(ProodError):
    """A point with a score above the certified bound was found: there is a bug in a bound."""


def confirm(images: Tensor, points: Tensor, found: Tensor, certified: Tensor, eps: float, folder: Path | None) -> None:
    """Stop if a score found in a ball exceeds its certified bound, and save the input.

    There is no tolerance: certificates cover every rounding of the float32 network, and scores are computed in the
    arithmetic that they cover.
    """
    exceeds = found > certified
    if not exceeds.any():
        return
    file = (folder or Path()) / VIOLATION_FILE
    kept = {"images": images, "points": points, "scores": found, "bounds": certified}
    arrays: dict[str, Any] = {name: values[exceeds].cpu().numpy() for name, values in kept.items()}
    with replacing(file) as aside, aside.open("wb") as opened:
        np.savez(opened, eps=eps, **arrays)
    raise BoundViolated(
        f"a score of {found[exceeds][0].item():.9g} was found where the certified bound is "
        f"{certified[exceeds][0].item():.9g}: there is a bug in a bound; report it with the input saved in {file}"
    )
