"""What came of a guard: the numbers of a deployer, and one paragraph that says whether it pays."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from prood import data, processes
from prood.data import ImageSet
from prood.detector import Detector
from prood.evaluation import Results, read_results
from prood.evaluation.metrics import rejected
from prood.evaluation.results import Evaluation
from prood.evaluation.words import radius_text
from prood.models.confidence import Floats
from prood.models.joint import confidence_logit
from prood.studies.runner import Runner

MUCH, SOME = 0.5, 0.1
"""Shares of the outliers that are provably rejected, from which on proofs pay, or pay in part."""
MOSTLY = 0.5
"""A class with more of the images inside is named beside the accuracy, as naming it alone would be accurate, too."""
COST = 0.02
"""By how much fewer outliers the guarded model may reject than the classifier alone, for its proofs."""


@dataclass(frozen=True)
class Facts:
    """Fractions of 1, on images that nothing was trained on or chosen by.

    `accuracy` is the classifier's, alone and guarded, for the class stays; `accuracy_accepted` that on the images which
    are accepted; `largest` the share of the largest class. `rejected_alone` is what the classifier's own confidence
    rejects of the outliers where it accepts as many images inside. `attacked` is the share of the outliers that stay
    rejected under attack, None without one.
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
    largest: float | None = None

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
            of_those = "" if self.accuracy_accepted is None else f" ({self.accuracy_accepted:.1%} on accepted images)"
            parts.append(
                f"The classifier alone names {self.accuracy:.1%} of {self.inside:,} test images right, and guarded"
            )
            parts[-1] += f" the same{of_those}."
            if self.largest is not None and self.largest > MOSTLY:
                parts[-1] += f" Always naming the largest class would be right for {self.largest:.1%}."
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


def facts_of(runner: Runner, run: Path, *, made: bool) -> Facts:
    """From what the study measured, and one look of the classifier at the test images."""
    detector = Detector.load(run, device=processes.device(runner.device))
    inside = data.load(runner.inside_name).numbered_as(detector.classes)
    (outside,) = (data.load(name, like=inside) for name in runner.recipe.evaluate.outside)
    results = read_results(run) or Results()
    proof, attack = _last(results, attacked=False), _last(results, attacked=True)
    assert proof is not None
    assert proof.scores is not None
    rule = detector.rule
    accepts = rule.accepts(rule.value(proof.scores.inside))
    sure, guesses = _alone(detector, inside)
    sure_outside, _ = _alone(detector, outside)
    right = largest = None
    if inside.labels is not None and int(inside.labels.max()) < detector.count:
        right = guesses == inside.labels.numpy()
        largest = float(torch.bincount(inside.labels).max()) / len(inside)
    share = min(1.0, max(float(accepts.mean()), 1e-6))
    return Facts(
        eps=runner.eps,
        threshold=rule.required,
        accepted=float(accepts.mean()),
        rejected=float(1 - rule.accepts(rule.value(proof.scores.clean)).mean()),
        rejected_alone=float(rejected(sure, {"": sure_outside}, [share])[""].item()),
        provable=float(rule.rejects(rule.bound(proof.scores.certified)).mean()),
        accuracy=None if right is None else float(right.mean()),
        accuracy_accepted=None if right is None or not accepts.any() else float(right[accepts].mean()),
        attacked=None if attack is None else _under_attack(attack, detector),
        inside=len(inside),
        outside=len(proof.scores.clean),
        made=made,
        largest=largest,
    )


@torch.no_grad()
def _alone(detector: Detector, images: ImageSet) -> tuple[Floats, NDArray[np.int64]]:
    """The classifier's own confidence, on the scale of scores, and its classes."""
    rows = torch.split(torch.arange(len(images)), 64)
    logits = torch.cat([detector.joint().logits(images.floats(some).to(detector.device)).cpu() for some in rows])
    return confidence_logit(logits).numpy(), logits.argmax(1).numpy()


def _under_attack(one: Evaluation, detector: Detector) -> float:
    assert one.scores is not None
    assert one.scores.attacked is not None
    return float(1 - detector.rule.accepts(detector.rule.value(one.scores.attacked)).mean())


def _last(results: Results, *, attacked: bool) -> Evaluation | None:
    found = [one for one in results if (one.attacks is not None) == attacked]
    return found[-1] if found else None
