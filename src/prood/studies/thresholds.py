"""The threshold of a joint model that is about to be made: what cannot be met is refused before, the rest is set after.

It is set by `calibrate_model`, as `prood calibrate` does, once the model's folder is there.
"""

from dataclasses import dataclass, field
from pathlib import Path

from prood import data
from prood.detector.gates import for_gate
from prood.errors import BadValue, ProodError
from prood.models import Discriminator, load
from prood.models.confidence import order_statistic
from prood.studies.gating import Asked, Calibrated, Outliers, calibrate_model


@dataclass(frozen=True)
class Threshold:
    """`images` is the name of an in-distribution image set that the model is not trained on."""

    images: str
    asked: Asked = field(default_factory=Asked)
    outliers: Outliers = field(default_factory=Outliers)

    def check(self, discriminator: Path | str) -> None:
        """Refuse at once what is wrong with the set or the point: a training may take hours before it is asked for."""
        model, _ = load(discriminator)
        shape = model.image if isinstance(model, Discriminator) else None  # others are refused by who makes the model
        count = len(data.open_set(self.images, shape=shape))
        for name in self.outliers.sets:
            data.find(name)
        gate = self.asked.check(count, outside=bool(self.outliers.sets))
        left = int((~for_gate(count)).sum()) if gate else count  # for the threshold
        order_statistic(left, tpr=self.asked.accept, confidence=self.asked.level)

    def set(self, run: Path | str, device: str | None = None) -> Calibrated:
        """Give the model in the folder `run` this threshold."""
        try:
            return calibrate_model(str(run), self.images, self.asked, outliers=self.outliers, device=device)
        except ProodError as error:
            fault = f"{error} ({run} has a model without this threshold: see 'prood calibrate --help')"
            raise BadValue(fault) from error
