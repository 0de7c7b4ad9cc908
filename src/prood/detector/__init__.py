"""The deployable object: threshold, predict, certify, radius; adapters for scikit-learn and pytorch-ood beside it."""

from prood.detector.answers import Answer, Certified, Prediction, Proof
from prood.detector.calibration import Calibration
from prood.detector.detector import Detector
from prood.detector.monitor import Monitor, Standing
from prood.detector.rule import Rule
from prood.models.confidence import confidence_bound, confidence_of, needed, order_statistic, threshold_at

__all__ = [
    "Answer",
    "Calibration",
    "Certified",
    "Detector",
    "Monitor",
    "Prediction",
    "Proof",
    "Rule",
    "Standing",
    "confidence_bound",
    "confidence_of",
    "needed",
    "order_statistic",
    "threshold_at",
]
