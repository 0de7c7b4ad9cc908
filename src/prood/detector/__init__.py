"""The deployable object: threshold, predict, certify, radius; adapters for scikit-learn and pytorch-ood beside it."""

from prood.detector.answers import Answer, Certified, Prediction, Proof
from prood.detector.calibration import Calibration, needed, order_statistic
from prood.detector.detector import Detector

__all__ = ["Answer", "Calibration", "Certified", "Detector", "Prediction", "Proof", "needed", "order_statistic"]
