"""A detector as pytorch-ood's: `predict` returns outlier scores, higher for out-of-distribution.

(Kirchheim, Filax and Ortmeier, *PyTorch-OOD: a library for out-of-distribution detection based on PyTorch*, 2022.)
pytorch-ood need not be installed; where it is, this is registered as one of its detectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor

from prood.detector.detector import Detector
from prood.errors import Unsupported
from prood.models.confidence import renamed

_NO_FEATURES = (
    "a certified detector scores images, not features: its discriminator looks at the pixels; use {}(images) instead"
)


class OutlierScore:
    """The score of a `Detector` with its sign turned: −log((c − 1/K)/(1 − c)) for the confidence c.

    `fit` is not required, since the score needs no threshold. It calibrates the detector that it is given.
    """

    requires_fit = False
    hyperparameter_space: ClassVar[dict[str, list[Any]]] = {}
    info = None

    def __init__(self, detector: Detector, *, accept: float = 0.95, level: float = 0.95, **old: float) -> None:
        self.detector = detector
        self.asked = {"accept": accept, "level": level, **renamed(old)}

    def fit(self, data_loader: Iterable[Any]) -> OutlierScore:
        """Calibrate on the images of a loader's batches (x, y), without those that y < 0 marks as outliers."""
        kept = [x[(y >= 0).to(x.device)] for x, y in data_loader]
        self.detector.calibrate(kept, **self.asked)
        return self

    def fit_features(self, x: Tensor, y: Tensor) -> OutlierScore:
        raise Unsupported(_NO_FEATURES.format("fit"))

    def predict(self, x: Tensor) -> Tensor:
        """One float64 number per image, on the device of the images."""
        return torch.from_numpy(-self.detector.predict(x).score).to(x.device)

    def predict_features(self, x: Tensor) -> Tensor:
        raise Unsupported(_NO_FEATURES.format("predict"))

    def __call__(self, x: Tensor) -> Tensor:
        return self.predict(x)

    @property
    def device(self) -> torch.device:
        return self.detector.device

    def to(self, device: str | torch.device) -> OutlierScore:
        """Move the model, in place as `nn.Module.to` does."""
        self.detector.to(device)
        return self

    def get_hyperparameters(self) -> dict[str, Any]:
        return {}

    def set_hyperparameters(self, **values: Any) -> OutlierScore:
        if values:
            raise ValueError(f"a Prood detector has no hyperparameters to set, but got {', '.join(values)}")
        return self


with suppress(ImportError, RuntimeError):  # not there, or its torchvision does not load beside this torch
    import_module("pytorch_ood.api").Detector.register(OutlierScore)
