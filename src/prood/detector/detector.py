"""The deployable object: a joint model, the confidence below which it rejects, and what it can prove of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prood import processes
from prood.bounds import Method, Norm
from prood.detector.answers import Floats, Prediction, Proof
from prood.detector.calibration import Calibration, calibrated
from prood.detector.inputs import Images, Shape, read
from prood.errors import ProodError, first_line
from prood.models import Discriminator, ProoD
from prood.models.joint import checked_threshold, confidence_logit


class Detector:
    """A guarded classifier: it labels an image, or rejects it, and proves that a whole ball of images is rejected.

        Detector(prood.load("runs/prood"))                        # its classes and threshold are the file's
        Detector(my_classifier, discriminator, shift=3.0)         # any module that returns logits

    An image is accepted if its confidence is at least `threshold`, a float64 number; this one comparison decides in
    `predict`, in `certify` and in the adapters. `classes` are the names of the classes. The model is used as it is,
    not copied: it is moved to the device and put into eval mode. `image`, the shape (channels, height, width) that
    the model takes, is needed only for a discriminator that was not built by `prood.discriminator`.
    """

    calibration: Calibration | None

    def __init__(
        self,
        model: nn.Module,
        discriminator: Discriminator | None = None,
        *,
        shift: float | None = None,
        threshold: float | None = None,
        classes: Sequence[str] | None = None,
        image: Sequence[int] | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.device = processes.device(str(device))
        self.model = _joint(model, discriminator, shift).to(self.device).eval()
        self.shape = _shape(self.model.discriminator, image)
        self.count = _count(self.model, self.shape, self.device)
        names = self.model.classes if classes is None else tuple(classes)
        if names is not None and len(names) != self.count:
            raise ProodError(f"there are {len(names)} names of classes, and the classifier has {self.count} classes")
        self.classes = tuple(map(str, range(self.count))) if names is None else names
        self._threshold = _checked(self.model.threshold if threshold is None else threshold)
        self.calibration = None

    @property
    def threshold(self) -> float | None:
        """An image with a smaller confidence is rejected. Setting it drops the calibration, which it is no part of."""
        return self._threshold

    @threshold.setter
    def threshold(self, threshold: float | None) -> None:
        self._threshold, self.calibration = _checked(threshold), None

    def calibrate(
        self, images: Images, *, tpr: float = 0.95, confidence: float = 0.95, batch: int = 256
    ) -> Calibration:
        """Set the threshold from in-distribution images that the model was not trained on, with a guarantee.

        With probability at least `confidence` over the draw of these images, a new one from the same distribution is
        accepted with probability at least `tpr`: see `prood.detector.calibration`. The model's weights stay as they
        are. It takes 59 images for the default values.
        """
        *_, scores = self._outputs(images, batch)
        found = calibrated(scores, self._confidence(scores), tpr=tpr, confidence=confidence)
        self.use(found)
        return found

    def use(self, calibration: Calibration) -> None:
        """Take over a calibration that was made before, with this model."""
        self._threshold, self.calibration = checked_threshold(calibration.threshold), calibration

    def predict(self, images: Images, *, batch: int = 256) -> Prediction:
        """Label, confidence, p(in) and whether each image is accepted; see `prood.detector.inputs` for the images."""
        labels, logits, g, scores = self._outputs(images, batch)
        confidence, p_in = self._confidence(scores), _sigmoid(g)
        return Prediction(
            label=labels,
            name=tuple(self.classes[label] for label in labels),
            confidence=confidence,
            p_in=p_in,
            score=scores,
            threshold=self.threshold,
            p_value=None if self.calibration is None else self.calibration.p_values(scores),
            probabilities=_probabilities(logits, p_in, labels, confidence),
        )

    def certify(
        self, images: Images, eps: float, *, method: Method = "best", norm: Norm = "linf", batch: int = 64
    ) -> Proof:
        """A bound of the confidence over the ball of radius `eps`, and how far each image provably stays rejected.

        Without a threshold there is only the bound. The radius is searched up to the whole of [0, 1]^d.
        """
        radius = _radius(eps)
        self.model.eval()
        bounds, radii = [np.zeros(0)], [np.zeros(0)]
        for stack in read(images, self.shape, batch=batch):
            some = stack.to(self.device)
            stop = self.threshold if method == "auto" else None  # others give the bound that does not depend on it
            bound = _array(self.model.upper_bound(some, radius, threshold=stop, method=method, norm=norm))
            bounds.append(bound)
            if self.threshold is not None:
                reach = _array(self.model.certified_radius(some, self.threshold, method=method, norm=norm))
                # The bisection may end a step below a radius at which it is proven.
                radii.append(np.where(bound < self.threshold, np.fmax(reach, radius), reach))
        found = None if self.threshold is None else np.concatenate(radii)
        return Proof(np.concatenate(bounds), self.threshold, radius, method, norm, found)

    def to(self, device: str | torch.device) -> Detector:
        """Move the model, in place as `nn.Module.to` does."""
        self.device = processes.device(str(device))
        self.model.to(self.device)
        return self

    def save(self, folder: Path | str) -> None:
        """Write the model, the threshold and the calibration into a new folder; `Detector.load` reads them."""
        from prood.detector.files import save

        save(self, Path(folder))

    @classmethod
    def load(cls, path: Path | str, *, device: str | torch.device = "cpu") -> Detector:
        """What `save` wrote, or a run's folder, a model file or a shipped model, which have no calibration."""
        from prood.detector.files import load

        return load(path, device)

    @torch.no_grad()
    def _outputs(self, images: Images, batch: int) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
        """Labels, the classifier's logits, g + Δ, and the scores log((c − 1/K)/(1 − c))."""
        self.model.eval()  # somebody may have gone on training it
        labels, gs, scores = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0)]
        rows = [np.zeros((0, self.count))]
        for stack in read(images, self.shape, batch=batch):
            some = stack.to(self.device)
            logits, g = self.model.logits(some), self.model.in_logit(some)
            score = _array(confidence_logit(logits, g))
            if np.isnan(score).any():
                raise ProodError("the model's confidence is NaN: look for the weight that makes it so")
            labels.append(logits.argmax(1).cpu().numpy())
            rows.append(_array(logits))
            gs.append(_array(g))
            scores.append(score)
        return np.concatenate(labels), np.concatenate(rows), np.concatenate(gs), np.concatenate(scores)

    def _confidence(self, scores: Floats) -> Floats:
        return np.asarray((self.count - 1) / self.count * _sigmoid(scores) + 1 / self.count)


def _sigmoid(values: Floats) -> Floats:
    """By NumPy, which gives equal numbers equal results wherever they stand in an array; torch does not.

    So equal scores have equal confidences, in whatever batch. `ProoD.upper_bound` leaves room for such differences.
    """
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -700, 700))))  # no overflow; beyond it is 0 or 1 anyway


def _probabilities(logits: Floats, p_in: Floats, labels: NDArray[np.int64], confidence: Floats) -> Floats:
    """Eq. 3. The label's probability is the confidence, from its own formula, which is the one that is certified."""
    weights = np.exp(logits - logits.max(1, keepdims=True))
    inside = weights / weights.sum(1, keepdims=True)
    found = inside * p_in[:, None] + (1 - p_in[:, None]) / logits.shape[1]
    np.put_along_axis(found, labels[:, None], confidence[:, None], 1)
    return np.asarray(found)


def _array(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()


def _radius(eps: float) -> float:
    try:
        radius = float(eps)
    except (TypeError, ValueError):
        raise ProodError(f"eps is one radius for all images, not {eps!r}: call certify once for each") from None
    if not (radius >= 0 and math.isfinite(radius)):
        raise ProodError(f"eps is a finite radius and not negative: not {radius}")
    return radius


def _joint(model: nn.Module, discriminator: Discriminator | None, shift: float | None) -> ProoD:
    if isinstance(model, ProoD):
        if discriminator is not None or shift is not None:
            raise ProodError("a joint model has its discriminator and its shift: give the classifier alone with others")
        return model
    if not isinstance(model, nn.Module):
        raise ProodError(f"a detector is made from a model, not from {type(model)}: prood.load(…) or Detector.load(…)")
    if discriminator is None:
        raise ProodError("a classifier needs a discriminator beside it: Detector(classifier, discriminator, shift=…)")
    return ProoD(model, discriminator, 0.0 if shift is None else shift)


def _shape(discriminator: Discriminator, image: Sequence[int] | None) -> Shape:
    if image is None:
        return discriminator.image
    if len(image) != 3:
        raise ProodError(f"an image has the shape (channels, height, width), not {tuple(image)}")
    channels, height, width = image
    return int(channels), int(height), int(width)


def _count(model: ProoD, shape: Shape, device: torch.device) -> int:
    """The number of classes, from one grey image; it also shows that the two networks take the same images."""
    grey = torch.full((1, *shape), 0.5, device=device)
    try:
        with torch.no_grad():
            model.in_logit(grey)
            return model.logits(grey).shape[1]
    except (RuntimeError, ValueError) as error:
        raise ProodError(f"the model does not take images of shape {shape}: {first_line(error)}") from None


def _checked(threshold: float | None) -> float | None:
    return None if threshold is None else checked_threshold(threshold)
