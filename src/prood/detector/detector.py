"""The deployable object: the one way from images to answers and to proofs about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from prood import bounds, processes
from prood.bounds.radius import nested
from prood.detector import files, hub
from prood.detector.answers import Prediction, Proof
from prood.detector.calibration import Calibration, calibrated
from prood.detector.gates import Spent, gated, schedule_of, ungated
from prood.detector.inputs import Images, radius_of, read, shape_of
from prood.detector.monitor import Monitor
from prood.detector.outputs import Outputs, classes_of, model_of, outputs_of, outputs_over
from prood.detector.rule import Rule
from prood.errors import Mismatch, Unsupported, warn
from prood.models import Discriminator, Gated, ProoD, Score, score_of
from prood.models.confidence import Floats, logistic, renamed


class Detector:
    """A guarded classifier: it labels an image, or rejects it, and proves that a whole ball of images is rejected.

        Detector(prood.load("runs/prood"))                        # its classes and threshold are the file's
        Detector(my_classifier, discriminator, shift=3.0)         # any module that returns logits
        Detector(discriminator)                                   # it only accepts or rejects

    `rule` decides by one comparison, in `predict`, in `certify` and in the adapters: an image is accepted if its
    confidence (g, of a bare discriminator) is at least `threshold`. `classes` are the names of the classes. The model
    is used as it is, not copied: it is moved to the device and put into eval mode. `image`, the shape (channels,
    height, width) that the model takes, is needed only for a discriminator that was not built by `prood.discriminator`.
    """

    calibration: Calibration | None
    provable: float | None  # the share of the false rejections that g may spend, where that is known
    accept: float | None  # the share of the in-distribution that passes, where the threshold's origin tells
    eps: float | None  # the radius that it was trained for, where its file says

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
        self.model = model_of(model, discriminator, shift).to(self.device).eval()
        self.shape = self.discriminator.image if image is None else shape_of(image)
        self.count = classes_of(self.model, self.shape, self.device)
        if isinstance(self.model, ProoD):
            classes = self.model.classes if classes is None else tuple(classes)
            threshold = self.model.threshold if threshold is None else threshold
        if classes is not None and len(classes) != self.count:
            raise Mismatch(f"there are {len(classes)} names of classes, and the classifier has {self.count} classes")
        self.classes = tuple(map(str, range(self.count)) if classes is None else classes)
        self.rule = Rule(self.count or None).at(threshold)
        self.calibration = self.accept = None
        self.eps = getattr(getattr(self.model, "about", None), "eps", None)
        self.provable = None if isinstance(self.model, Gated) else 0.0

    def __repr__(self) -> str:
        return f"Detector({self.model!r}, threshold={self.threshold}, device={str(self.device)!r})"

    @property
    def discriminator(self) -> Discriminator:
        return self.model.discriminator if isinstance(self.model, ProoD) else self.model

    def joint(self) -> ProoD:
        """The model, for those who need its classifier: a bare discriminator is refused."""
        if isinstance(self.model, ProoD):
            return self.model
        raise Unsupported("the detector holds only a discriminator: make a joint model with 'prood train prood'")

    @property
    def score(self) -> Score:
        """What attacks maximise and rankings compare."""
        return score_of(self.model)

    @property
    def shift(self) -> float:
        return self.model.shift.item() if isinstance(self.model, ProoD) else 0.0

    @property
    def threshold(self) -> float | None:
        """An image with a smaller confidence is rejected. Setting it drops the calibration, which no longer applies."""
        return self.rule.threshold

    @threshold.setter
    def threshold(self, threshold: float | None) -> None:
        self.rule = self.rule.at(threshold)
        self.calibration = self.accept = None

    tpr = property(lambda self: self.accept, doc="`accept` by its name before.")

    @property
    def p_in_threshold(self) -> float | None:
        """Below this p(in) g alone rejects an image, up to rounding; None without a threshold."""
        if self.threshold is None or not isinstance(self.model, ProoD):
            return None if self.threshold is None else logistic(self.threshold)
        return self.model.p_in_at(self.threshold, self.count)

    def calibrate(
        self,
        images: Images,
        *,
        accept: float = 0.95,
        level: float = 0.95,
        provable: Spent = None,
        batch: int = 256,
        **old: float,
    ) -> Calibration:
        """Set the threshold from in-distribution images that the model was not trained on, with a guarantee.

        With probability at least `level` over the draw of these images, a new one from the same distribution is
        accepted with probability at least `accept`: see `prood.detector.calibration`. It takes 59 images by default.

        `provable` is the share of the false rejections that g alone may spend (docs/verdict.md): the more, the more
        verdicts are proved, and the more images outside pass. Half of the images then make the model's gate, and the
        other half the threshold. With 0 the model has no gate, with None the one that it has. The weights stay.
        """
        given = renamed(old)
        accept, level = given.pop("accept", accept), given.pop("level", level)
        if given:
            raise TypeError(f"calibrate has no argument {min(given)!r}")
        model = self.model if provable is None else ungated(self.joint())
        seen = self._outputs(images, batch, model)
        scores = seen.scores
        schedule = schedule_of(provable)
        if schedule.end > 0:
            model, scores = gated(self.joint(), schedule, scores, seen.g)
        found = calibrated(scores, self.rule.value(scores), accept=accept, level=level)
        if provable is not None:
            self.provable = schedule.provable
        self.model = model
        self.use(found)
        if doubt := found.doubt(float((seen.g < 0).mean()), self.count):
            warn(doubt)
        return found

    def use(self, calibration: Calibration) -> None:
        """Take over a calibration that was made before, with this model."""
        self.threshold = calibration.threshold
        self.calibration, self.accept = calibration, calibration.accept

    def monitor(self, file: Path | str | None = None, *, false_alarms: float | None = None) -> Monitor:
        """Tests, image by image, whether arrivals still look like the calibration images; `file` keeps its state."""
        return Monitor(self.calibration, file=file, false_alarms=false_alarms)

    def predict(self, images: Images, *, batch: int = 256) -> Prediction:
        """Label, confidence, p(in) and whether each image is accepted; see `prood.detector.inputs` for the images."""
        found = self._outputs(images, batch)
        confidence, p_in = self.rule.value(found.scores), logistic(found.g)
        return Prediction(
            label=found.labels,
            name=tuple(self.classes[label] if self.count else "–" for label in found.labels),
            confidence=confidence,
            p_in=p_in,
            score=found.scores,
            rule=self.rule,
            p_value=None if self.calibration is None else self.calibration.p_values(found.scores),
            logits=found.logits,
            cap=found.caps,
        )

    def certify(
        self,
        images: Images,
        eps: float | str | None = None,
        *,
        radius: bool = False,
        batch: int = 64,
        bound: bounds.Method = "best",
        **options: Unpack[bounds.Options],
    ) -> Proof:
        """Bound the confidence over the ball of radius `eps`, and say whether all images in it are provably rejected.

        `eps` is by default the radius that the model was trained for, `bound` the way of bounding, and `norm` "linf".
        With `radius`, the largest radius at which each image provably stays rejected is searched, up to the whole of
        [0, 1]^d, by about twenty more bounds per image. Without a threshold there is only the bound.
        """
        options = {"method": bound, **options}
        asked = radius_of(self.eps if eps is None else eps, options.get("norm", "linf"))
        found, radii = [np.zeros(0)], [np.zeros(0)]
        for stack in read(images, self.shape, batch=batch):
            highest = self.upper_bound(stack, asked, **options)
            found.append(highest)
            if self.threshold is not None:
                reach = self.certified_radius(stack, **options) if radius else np.full(len(highest), np.nan)
                radii.append(self.rule.reach(reach, highest[:, None], [asked]))
        reached = None if self.threshold is None else np.concatenate(radii)
        how = options.get("method", "best"), options.get("norm", "linf")
        return Proof(np.concatenate(found), self.rule, asked, *how, reached)

    def upper_bounds(
        self, images: Images, eps: Sequence[float], *, batch: int = 64, **options: Unpack[bounds.Options]
    ) -> Floats:
        """The bounds (N, R) at several radii: what is proven about a ball holds for those inside it."""
        radii = [radius_of(one, options.get("norm", "linf")) for one in eps]
        found = [np.zeros((0, len(eps)))]
        for stack in read(images, self.shape, batch=batch):
            found.append(np.stack([self.upper_bound(stack, radius, **options) for radius in radii], 1))
        return self.nested(np.concatenate(found), radii)

    @staticmethod
    def nested(found: Floats, eps: Sequence[float]) -> Floats:
        """Bounds (N, R) that were computed for each ball alone, with what those of larger balls prove."""
        return _array(nested(torch.from_numpy(found), eps))

    def upper_bound(self, images: Tensor, eps: float | Tensor, **options: Unpack[bounds.Options]) -> Floats:
        """The bound for each image of a batch as `read` gives it, with one radius for all or one for each."""
        stop = self.stop if options.get("method") == "auto" else None  # others give the same anyway
        return _array(self.bounded(self.bound_of_g(images, eps, stop, **options)))

    def certified_radius(self, images: Tensor, **options: Unpack[bounds.Options]) -> Floats:
        """The radius up to which each image of a batch provably stays rejected, by bisection; NaN: it is not."""
        stop, norm = self.stop, options.get("norm", "linf")

        def bound(some: Tensor, eps: Tensor) -> Tensor:
            return self.bounded(self.bound_of_g(some, eps, stop, **options))

        return _array(bounds.certified_radius(bound, images.to(self.device), self.rule.required, norm=norm))

    def bound_of_g(
        self, images: Tensor, eps: float | Tensor, stop: float | None = None, **options: Unpack[bounds.Options]
    ) -> Tensor:
        """ḡ, without the shift: what certificates state. The methods auto and bab end where it is below `stop`."""
        self.model.eval()  # somebody may have gone on training it
        radii = eps.to(self.device) if isinstance(eps, Tensor) else eps
        return self.discriminator.upper_bound(images.to(self.device), radii, threshold=stop, **options)

    def bounded(self, of_g: Tensor) -> Tensor:
        """The bounds of the confidence (of g, of a bare discriminator) that follow from bounds ḡ."""
        return self.rule.bound(self.model.shifted(of_g) if isinstance(self.model, ProoD) else of_g)

    @property
    def stop(self) -> float | None:
        """The g below which a bound surely is below the threshold: there a search for better bounds may end."""
        score = self.rule.stop()
        return self.model.g_at(score) if isinstance(self.model, ProoD) and score is not None else score

    @torch.no_grad()
    def anywhere(self, points: Tensor) -> tuple[Floats, Floats]:
        """Confidences and p(in) of any numbers at all: `predict` refuses pixels outside [0, 1]."""
        found = outputs_of(self.model, points.to(self.device))
        return self.rule.value(found.scores), logistic(found.g)

    def to(self, device: str | torch.device) -> Detector:
        """Move the model, in place as `nn.Module.to` does."""
        self.device = processes.device(str(device))
        self.model.to(self.device)
        return self

    def save(self, folder: Path | str) -> None:
        """Write the model, the threshold and the calibration into a new folder; `Detector.load` reads them."""
        files.save(self, Path(folder))

    @classmethod
    def load(cls, path: Path | str, *, device: str | torch.device = "cpu", trust_code: bool = False) -> Detector:
        """What `save` wrote, or a run's folder, a model file or a shipped model, which have no calibration.

        With `trust_code`, a TorchScript classifier in the folder may run; without it, it is refused.
        """
        return files.load(cls, path, device=device, trust_code=trust_code)

    def save_pretrained(self, folder: Path | str, *, licence: str | None = None, card: str | None = None) -> None:
        """Write a new folder as the Hugging Face Hub has it: config.json, model.safetensors, README.md (the card)."""
        hub.save(self, Path(folder), licence=licence, card=card)

    @classmethod
    def from_pretrained(cls, name: str, *, revision: str | None = None, **how: Any) -> Detector:
        """What `save_pretrained` wrote or `push_to_hub` uploaded: a folder, or USER/NAME; see `load` for the rest."""
        return cls.load(hub.found(str(name), revision), **how)

    def push_to_hub(self, name: str, **how: Any) -> str:
        """Upload to USER/NAME, and return the name of exactly this: see `prood.detector.hub.push` for the options."""
        return hub.push(self, name, **how)

    @torch.no_grad()
    def _outputs(self, images: Images, batch: int, model: ProoD | Discriminator | None = None) -> Outputs:
        """Outputs of the detector's model, or of another one for the same images."""
        model, count = (self.model if model is None else model).eval(), self.count
        return outputs_over(model, count, (stack.to(self.device) for stack in read(images, self.shape, batch=batch)))


def _array(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()
