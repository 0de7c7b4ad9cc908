"""What the model's thread computes: a lane each, a function of a stack of images; and the classifier alone."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from prood import bounds
from prood.detector import Answer, Detector, Prediction, Rule
from prood.detector.answers import Reason
from prood.models.joint import confidence_logit
from prood.models.score import Confidence
from prood.serve.batching import Arrays, Work

HOW: bounds.Options = {"method": "best", "norm": "linf"}


def lanes(detector: Detector, predicting: Callable[[Tensor, Tensor], Prediction]) -> Mapping[str, Work]:
    """predict; bound, of the ball with a radius for each row; far; classifier, what that says alone.

    `predicting` is the detector's `predict`, and counts the images whose number is 0.
    """

    def predict(images: Tensor, numbers: Tensor) -> Arrays:
        found = predicting(images, numbers == 0)
        answers: Arrays = {name: getattr(found, name) for name in ("label", "confidence", "p_in", "probabilities")}
        if found.threshold is not None:
            answers["accepted"] = found.accepted
            answers["reason"] = np.array(found.reason, dtype=object)
        if found.p_value is not None:
            answers["p_value"] = found.p_value
        return answers

    def bound(images: Tensor, eps: Tensor) -> Arrays:
        of_g = detector.bound_of_g(images, eps, **HOW)
        return {"upper_bound": detector.bounded(of_g).double().cpu().numpy(), "of_g": of_g.double().cpu().numpy()}

    return {
        "predict": predict,
        "bound": bound,
        "far": lambda images, _: dict(zip(("confidence", "p_in"), detector.anywhere(images), strict=True)),
        "classifier": lambda images, _: {"score": Bare(detector).scores(images)},
    }


class Bare:
    """The classifier of a joint model, as if there were no discriminator: its confidence is max p_f(y|x).

    `threshold` is the confidence below which it would reject, where one is known.
    """

    def __init__(self, detector: Detector, threshold: float | None = None) -> None:
        self.detector, self.threshold = detector, threshold
        self.score = Confidence(detector.joint().classifier)
        self.rule = Rule(detector.count).at(threshold)

    @torch.no_grad()
    def scores(self, images: Tensor) -> np.ndarray:
        """log((c − 1/K)/(1 − c))"""
        return np.asarray(self.score(images.to(self.detector.device)).cpu().numpy())

    @torch.no_grad()
    def answer(self, image: Tensor) -> Answer:
        """About a stack of one image. There is no p(in), and no gate but the threshold."""
        logits = self.detector.joint().logits(image.to(self.detector.device))
        label, value = int(logits[0].argmax()), float(self.rule.value(confidence_logit(logits)[0].item()))
        accepted = None if self.threshold is None else bool(self.rule.accepts(value))
        reason: Reason | None = "confidence" if accepted is False else None
        return Answer(label, self.detector.classes[label], value, math.nan, accepted, None, reason)
