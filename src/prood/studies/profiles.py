"""What was measured about one model, as data: the numbers that its properties are judged by."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import mean
from typing import Any

from prood.evaluation.asymptotics.far import Far
from prood.evaluation.robustness import Robustness, from_json

FAR = 1000.0
"""The α of x + α·n at which asymptotics are judged."""
MEANS = ("auc", "aauc", "gauc")


@dataclass(frozen=True)
class Profile:
    """A model's numbers at one radius, fractions of 1; `seconds` are those of its training, None if it had none.

    `sets` holds auc, aauc and gauc by out-distribution. `fingerprint` names the weights they belong to.
    """

    title: str
    run: str
    method: str | None
    seconds: float | None
    accuracy: float | None
    sets: dict[str, dict[str, float | None]]
    far: Far
    robustness: Robustness | None
    fingerprint: str
    properties: dict[str, str] = field(default_factory=dict)  # a mark's word by the rule's key

    def values(self, metric: str) -> list[float]:
        """A metric of every set, where it was measured."""
        found = (values[metric] for values in self.sets.values())
        return [value for value in found if value is not None]

    def mean(self, metric: str) -> float | None:
        values = self.values(metric)
        return mean(values) if values else None

    def far_auc(self) -> float:
        return self.far.auc[self.far.alphas.index(FAR)]

    def far_confidence(self) -> float | None:
        return None if self.far.confidence is None else self.far.confidence[self.far.alphas.index(FAR)]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {metric: self.mean(metric) for metric in MEANS}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Profile:
        measured = from_json({"of": "", **content})
        facts = {key: value for key, value in content.items() if key not in MEANS}
        return cls(**facts | {"far": measured.far, "robustness": measured.robustness})
