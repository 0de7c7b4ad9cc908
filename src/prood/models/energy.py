"""A classifier that detects by its energy (Liu, Wang, Owens and Li, 2020)."""

from typing import Any

from torch import Tensor, nn

from prood.errors import BadValue
from prood.models.architectures import Spec, architecture, build, spec_of
from prood.models.score import Score, quick_logits, scores


class EnergyClassifier(nn.Module):
    """Any classifier f; its energy is E(x) = −T·log Σ_y exp(f_y(x)/T). Calling it returns f's logits."""

    def __init__(self, classifier: nn.Module, temperature: float = 1.0) -> None:
        super().__init__()
        if not 0 < temperature < float("inf"):
            raise BadValue(f"the temperature of an energy must be positive, not {temperature}")
        self.classifier = classifier
        self.temperature = float(temperature)

    @property
    def architecture(self) -> dict[str, Any]:
        return {
            "name": "energy-classifier",
            "classifier": spec_of(self.classifier),
            "temperature": self.temperature,
        }

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(images)
        return logits

    def energy(self, logits: Tensor) -> Tensor:
        """E of images with these logits: low where the classifier has seen something it knows."""
        return -self.temperature * (logits / self.temperature).logsumexp(1)


@scores(EnergyClassifier)
class Energy(Score):
    """−E(x), in float64 from the float32 logits: it keeps its order where every confidence rounds to 1."""

    model: EnergyClassifier

    def __call__(self, images: Tensor) -> Tensor:
        return -self.model.energy(self.model(images).double())

    def quick(self, images: Tensor) -> Tensor:
        return -self.model.energy(quick_logits(self.model, images).double())

    def logits(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits


@architecture("energy-classifier")
def _energy_classifier(classifier: Spec, temperature: float = 1.0) -> EnergyClassifier:
    return EnergyClassifier(build(classifier), temperature)
