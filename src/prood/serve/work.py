"""What the model's thread computes: a lane each, a function of a stack of images."""

from collections.abc import Mapping

from torch import Tensor

from prood.bounds import Method, Norm
from prood.detector import Detector
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
        return {"upper_bound": detector.upper_bound(images, eps, method=METHOD, norm=NORM)}

    def radius(images: Tensor, _: Tensor | None) -> Arrays:
        return {"radius": detector.certified_radius(images, method=METHOD, norm=NORM)}

    def far(images: Tensor, _: Tensor | None) -> Arrays:
        return dict(zip(("confidence", "p_in"), detector.anywhere(images), strict=True))

    return {"predict": predict, "bound": bound, "radius": radius, "far": far}
