"""What the model's thread computes: a lane each, a function of a stack of images."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from prood.bounds import Method, Norm
from prood.detector import Detector
from prood.models.joint import confidence_logit
from prood.serve.batching import Arrays, Work

METHOD: Method = "best"
NORM: Norm = "linf"


def lanes(detector: Detector) -> Mapping[str, Work]:
    """predict; bound, of the ball with a radius for each row; radius, up to which it stays rejected; far."""

    def predict(images: Tensor, _: Tensor | None) -> Arrays:
        found = detector.predict(images, batch=len(images))
        answers: Arrays = {
            "label": found.label,
            "confidence": found.confidence,
            "p_in": found.p_in,
            "probabilities": found.probabilities,
        }
        if found.threshold is not None:
            answers["accepted"] = found.accepted
        if found.p_value is not None:
            answers["p_value"] = found.p_value
        return answers

    def bound(images: Tensor, eps: Tensor | None) -> Arrays:
        assert eps is not None
        some, radii = images.to(detector.device), eps.to(detector.device)
        return {"upper_bound": _array(detector.model.upper_bound(some, radii, method=METHOD, norm=NORM))}

    def radius(images: Tensor, _: Tensor | None) -> Arrays:
        assert detector.threshold is not None
        some = images.to(detector.device)
        return {"radius": _array(detector.model.certified_radius(some, detector.threshold, method=METHOD, norm=NORM))}

    def far(images: Tensor, _: Tensor | None) -> Arrays:
        return scores(detector, images)

    return {"predict": predict, "bound": bound, "radius": radius, "far": far}


@torch.no_grad()
def scores(detector: Detector, images: Tensor) -> Arrays:
    """Confidence and p(in) of any numbers at all: the detector itself refuses pixels outside [0, 1]."""
    some = images.to(detector.device)
    g = detector.model.in_logit(some)
    score = _array(confidence_logit(detector.model.logits(some), g))
    count = detector.count
    return {"confidence": (count - 1) / count * _sigmoid(score) + 1 / count, "p_in": _sigmoid(_array(g))}


def curves(bounds: np.ndarray, eps: list[float]) -> np.ndarray:
    """Bounds (N, R) of nested balls: what is proven of a ball holds for those inside it."""
    order = np.argsort(eps)
    best = np.empty_like(bounds)
    best[:, order] = np.minimum.accumulate(bounds[:, order[::-1]], 1)[:, ::-1]
    return best


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -700, 700))))


def _array(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()
