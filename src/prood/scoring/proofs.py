"""Certificates as a column: for each image the line that `prood certify` writes, which `prood verify` checks."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from prood.certification.certify import follow
from prood.certification.record import Certificate, ImageReference, ModelReference, file_sha256
from prood.detector import Detector
from prood.errors import BadValue, Mismatch
from prood.models import model_path
from prood.scoring.options import Options

Reference = tuple[str, int | None]


@dataclass(frozen=True)
class Prover:
    """Makes the certificates of one model, by one way of bounding. Their seconds are 0: rows must repeat."""

    detector: Detector
    model: ModelReference
    options: Options

    @classmethod
    def of(cls, detector: Detector, path: str | None, options: Options) -> Prover:
        """For the detector that was read from this path."""
        if path is None:
            raise BadValue("certificates name the model's file: save the detector, then pass its path to Scorer")
        return cls(detector, ModelReference(path, file_sha256(model_path(path))), options)

    def bounds(self, images: Tensor, eps: float) -> list[float]:
        """ḡ of each image, without the shift."""
        how: dict[str, Any] = {"method": self.options.bound, "norm": self.options.norm}
        found: list[float] = self.detector.bound_of_g(images, eps, **how).tolist()
        return found

    def lines(self, bounds: Sequence[float], eps: float, images: Sequence[ImageReference | None]) -> list[str | None]:
        """A line for each image that could be read and has a bound."""
        found: list[str | None] = []
        for image, bound, confidence in zip(images, bounds, follow(self.detector, bounds), strict=True):
            if image is None or not math.isfinite(bound):
                found.append(None)
                continue
            facts = bound, self.detector.shift, self.detector.rule.classes, confidence
            norm, method = self.options.norm, self.options.bound
            found.append(Certificate(image, self.model, norm, eps, method, *facts).to_json())
        return found


def references(batch: Mapping[str, Any], column: str) -> Sequence[Reference]:
    """What certificates call the images of a batch: its column `reference`, or else their paths."""
    if "reference" in batch:
        return list(batch["reference"])
    images = list(batch[column])
    if not all(isinstance(image, str | Path) for image in images):
        raise Mismatch("certificates name their images: give paths, or a column `reference` of (name, row or None)")
    return [(os.path.abspath(image), None) for image in images]
