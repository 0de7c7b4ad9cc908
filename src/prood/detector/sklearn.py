"""A detector as scikit-learn's outlier detectors: +1 for accepted, −1 for rejected."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted

from prood.detector.answers import Prediction
from prood.detector.detector import Detector
from prood.models.confidence import Floats


class OutlierDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """`fit` calibrates the threshold on in-distribution images; the weights stay as they are.

    X is what `Detector.predict` takes, or, as scikit-learn likes it, a table with an image's pixels in each row. The
    detector given is not changed: the calibrated one is `detector_`.
    """

    def __init__(
        self,
        detector: Detector,
        *,
        accept: float = 0.95,
        level: float = 0.95,
        batch: int = 256,
        tpr: float | None = None,
        confidence: float | None = None,
    ) -> None:
        self.detector = detector
        self.accept = accept
        self.level = level
        self.batch = batch
        self.tpr = tpr  # the names before: where they are given, they count
        self.confidence = confidence

    def fit(self, X: Any, y: Any = None) -> OutlierDetector:
        detector = copy.copy(self.detector)  # the same model, with a threshold of its own
        accept = self.accept if self.tpr is None else self.tpr
        level = self.level if self.confidence is None else self.confidence
        found = detector.calibrate(self._images(X), accept=accept, level=level, batch=self.batch)
        self.detector_ = detector
        self.offset_ = found.score
        self.n_features_in_ = math.prod(detector.shape)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.where(self._predict(X).accepted, 1, -1)

    def score_samples(self, X: Any) -> Floats:
        """log((c − 1/K)/(1 − c)) for the confidence c: higher is more in-distribution."""
        return self._predict(X).score

    def decision_function(self, X: Any) -> Floats:
        """score_samples − offset_: at least 0 where an image is accepted, below 0 where it is rejected."""
        found = self._predict(X)
        above = found.score - self.offset_
        # Where confidences round to the threshold, they are accepted, though their scores may be a little below.
        return np.where(found.accepted, np.maximum(above, 0), np.minimum(above, -np.finfo(np.float64).tiny))

    def __sklearn_tags__(self) -> Any:
        """X is images, (N, C, H, W), with pixels that are not negative. A table is only another way to pass them."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.input_tags.positive_only = True
        return tags

    def _predict(self, X: Any) -> Prediction:
        check_is_fitted(self)
        return self.detector_.predict(self._images(X), batch=self.batch)

    def _images(self, X: Any) -> Any:
        shape = self.detector.shape
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == math.prod(shape):
            return X.reshape(-1, *shape)
        return X
