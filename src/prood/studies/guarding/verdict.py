"""What came of a guard: the numbers of a deployer, and one paragraph that says whether it pays."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prood import data
from prood.data import ImageSet
from prood.detector import Detector
from prood.errors import NotFound
from prood.evaluation import Results, read_results
from prood.evaluation.metrics import rejected
from prood.evaluation.results import Evaluation
from prood.evaluation.words import radius_text
from prood.studies.guarding.study import CLASSIFIER, GUARDED
from prood.studies.lab import Lab

MUCH, SOME = 0.5, 0.1
"""Shares of the outliers that are provably rejected, from which on proofs pay, or pay in part."""
COST = 0.02
"""So many fewer outliers may the guarded model reject than the classifier alone, for its proofs."""


@dataclass(frozen=True)
class Facts:
    """Fractions of 1, on images that nothing was trained on or chosen by.

    `accuracy` is the classifier's, alone and guarded, for the class stays; `accuracy_accepted` that on the images which
    are accepted. `rejected_alone` is what the classifier's own confidence rejects of the outliers where it accepts as
    many images inside. `attacked` is the share of the outliers that stay rejected under attack, None without one.
    """

    eps: float
    threshold: float
    accepted: float
    rejected: float
    rejected_alone: float
    provable: float
    accuracy: float | None
    accuracy_accepted: float | None
    attacked: float | None
    inside: int
    outside: int
    made: bool

    @property
    def pays(self) -> str:
        """In a sentence."""
        lost = self.rejected_alone - self.rejected
        price = "at no cost in plain rejections" if lost <= 0 else f"for {100 * lost:.1f} points of plain rejections"
        radius = radius_text(self.eps)
        if self.provable >= MUCH and lost <= COST:
            said = f"It pays: most outliers like these stay rejected whatever is done to them within {radius}, {price}."
        elif self.provable >= MUCH:
            said = f"It pays if you need the proofs: they come {price}."
        elif self.provable >= SOME:
            said = f"It pays in part: {self.provable:.0%} of outliers like these are provably rejected, {price}. "
            said += "A smaller --eps, more --minutes or a smaller --accept prove more."
        elif self.rejected > self.rejected_alone + COST:
            said = "As a proof it does not pay for these data; as a detector it does: more outliers are rejected."
        else:
            said = "It does not pay for these data: hardly anything is proved. Images inside and outside look too much "
            said += "alike for a small network; try a smaller --eps, more --minutes, or other outliers."
        if self.made:
            said += (
                " The outliers of this test were made by a program: photographs of other things are rejected far less "
            )
            said += "often, so give some with --outside."
        return said

    def paragraph(self) -> str:
        """Everything, for people."""
        parts = []
        if self.accuracy is not None:
            of_those = "" if self.accuracy_accepted is None else f" ({self.accuracy_accepted:.1%} of those it accepts)"
            parts.append(
                f"The classifier alone names {self.accuracy:.1%} of {self.inside:,} test images right, and guarded"
            )
            parts[-1] += f" the same{of_those}."
        parts.append(
            f"At confidence ≥ {self.threshold:.4g} the guarded model accepts {self.accepted:.1%} of them, and rejects "
            f"{self.rejected:.1%} of {self.outside:,} outliers, where the classifier alone rejects "
            f"{self.rejected_alone:.1%}."
        )
        radius = f"within ε = {radius_text(self.eps)} of each pixel"
        parts.append(f"{self.provable:.1%} are provably rejected: nothing {radius} makes the model accept them.")
        if self.attacked is not None:
            parts.append(f"Under a short attack {self.attacked:.1%} of a few stay rejected.")
        return " ".join([*parts, self.pays])


def facts_of(lab: Lab, run: Path, *, made: bool) -> Facts:
    """From what the study measured, and one pass over the test images."""
    detector = Detector.load(run, device=lab.device or "cpu")
    images = data.load(lab.inside_name).numbered_as(detector.classes)
    guarded, eps = read_results(run) or Results(), lab.eps
    proof = _last(guarded, attacked=False)
    attack = _last(guarded, attacked=True) if any(one.attacks for one in guarded) else None
    assert proof.scores is not None
    rule = detector.rule
    accepted, accuracy, of_accepted = _answers(detector, images)
    alone = _last(read_results(lab.place(CLASSIFIER, None)) or Results(), attacked=False)
    assert alone.scores is not None
    share = rejected(alone.scores.inside, {"": alone.scores.clean}, [min(1.0, max(accepted, 1e-6))])[""].item()
    return Facts(
        eps=eps,
        threshold=rule.required,
        accepted=accepted,
        rejected=float(1 - rule.accepts(rule.value(proof.scores.clean)).mean()),
        rejected_alone=float(share),
        provable=float(rule.rejects(rule.bound(proof.scores.certified)).mean()),
        accuracy=accuracy,
        accuracy_accepted=of_accepted,
        attacked=None if attack is None else _under_attack(attack, detector),
        inside=len(images),
        outside=len(proof.scores.clean),
        made=made,
    )


def _answers(detector: Detector, images: ImageSet) -> tuple[float, float | None, float | None]:
    """The share that is accepted, and the accuracy on all images and on those, where they have labels."""
    found = detector.predict(images)
    accepts = detector.rule.accepts(found.confidence)
    if images.labels is None or int(images.labels.max()) >= detector.count:
        return float(accepts.mean()), None, None
    right = np.asarray(found.label == images.labels.numpy())
    return float(accepts.mean()), float(right.mean()), float(right[accepts].mean()) if accepts.any() else None


def _under_attack(one: Evaluation, detector: Detector) -> float:
    assert one.scores is not None
    assert one.scores.attacked is not None
    return float(1 - detector.rule.accepts(detector.rule.value(one.scores.attacked)).mean())


def _last(results: Results, *, attacked: bool) -> Evaluation:
    found = [one for one in results if (one.attacks is not None) == attacked]
    if not found:
        raise NotFound(f"the model {GUARDED} was not evaluated yet: run prood guard again")
    return found[-1]
