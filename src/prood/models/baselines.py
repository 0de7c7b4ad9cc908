"""Models of methods that Prood is compared with, each with the score by which it detects."""

from typing import Any

from torch import Tensor, nn

from prood.errors import BadValue, NotFound
from prood.models.architectures import Spec, architecture, build, spec_of
from prood.models.score import OfLogits, Score, quick_logits, scores


class EnergyClassifier(nn.Module):
    """Any classifier f that detects by its energy E(x) = −T·log Σ_y exp(f_y(x)/T) (Liu, Wang, Owens and Li, 2020).

    Calling it returns f's logits.
    """

    def __init__(self, classifier: nn.Module, temperature: float = 1.0) -> None:
        super().__init__()
        if not 0 < temperature < float("inf"):
            raise BadValue(f"the temperature of an energy must be positive, not {temperature}")
        self.classifier = classifier
        self.temperature = float(temperature)

    @property
    def architecture(self) -> dict[str, Any]:
        return {"name": "energy-classifier", "classifier": spec_of(self.classifier), "temperature": self.temperature}

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(images)
        return logits

    def energy(self, logits: Tensor) -> Tensor:
        """E of images with these logits: low where the classifier has seen something it knows."""
        return -self.temperature * (logits / self.temperature).logsumexp(1)


@scores(EnergyClassifier)
class Energy(OfLogits):
    """−E(x), in float64 from the float32 logits: it keeps its order where every confidence rounds to 1."""

    model: EnergyClassifier

    def of(self, logits: Tensor) -> Tensor:
        return -self.model.energy(logits.double())


@architecture("energy-classifier")
def _energy_classifier(classifier: Spec, temperature: float = 1.0) -> EnergyClassifier:
    return EnergyClassifier(build(classifier), temperature)


class ExtraClass(nn.Module):
    """A network with K + 1 outputs, the last of them for the out-distribution, as ATOM trains it.

    Calling it returns the K logits of the classes, so that it is a classifier like any other; `extended` returns all.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    @property
    def architecture(self) -> dict[str, Any]:
        return {"name": "extra-class", "network": spec_of(self.network)}

    def extended(self, images: Tensor) -> Tensor:
        """The K + 1 logits."""
        logits: Tensor = self.network(images)
        return logits

    def forward(self, images: Tensor) -> Tensor:
        return self.extended(images)[:, :-1]


@architecture("extra-class")
def extra_class(network: Spec) -> ExtraClass:
    """Around the network with this spec, whose number of classes counts the extra one."""
    return ExtraClass(build(network))


def with_extra_class(spec: Spec) -> ExtraClass:
    """Around the classifier with this spec, which gets one class more."""
    classes = spec.get("classes")
    if not isinstance(classes, int):
        raise NotFound(f"architecture {spec.get('name')!r} does not say how many classes it has, to give it one more")
    return extra_class({**spec, "classes": classes + 1})


def not_last(logits: Tensor) -> Tensor:
    """log((1 − p) / p) for the probability p of the last class: it keeps its digits where p is near 0 or 1."""
    return logits[:, :-1].logsumexp(1) - logits[:, -1]


@scores(ExtraClass)
class NotExtra(Score):
    """log((1 − p) / p) for the probability p of the extra class. It has no certificate."""

    model: ExtraClass

    def __call__(self, images: Tensor) -> Tensor:
        return not_last(self.model.extended(images).double())

    def quick(self, images: Tensor) -> Tensor:
        return not_last(quick_logits(self.model.network, images).double())

    def logits(self, images: Tensor) -> Tensor:
        return self.model.extended(images)[:, :-1]
