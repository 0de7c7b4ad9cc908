"""Far away from all data: Theorem 1 on a given network, directions that it leaves out, and the search for them."""

from prood.evaluation.asymptotics.adversary import SCHEDULES, Found, Stage, adversarial_directions, objective_of
from prood.evaluation.asymptotics.far import ALPHAS, CURVE, KINDS, Far, far_away, mean_confidence, random_directions
from prood.evaluation.asymptotics.study import (
    Asymptotics,
    FarOptions,
    scale_wise_maximum,
    study,
    study_run,
    with_far_penalty,
)
from prood.evaluation.asymptotics.theorem import Condition, Fates, Theorem, check_theorem, fates

__all__ = [
    "ALPHAS",
    "CURVE",
    "KINDS",
    "SCHEDULES",
    "Asymptotics",
    "Condition",
    "Far",
    "FarOptions",
    "Fates",
    "Found",
    "Stage",
    "Theorem",
    "adversarial_directions",
    "check_theorem",
    "far_away",
    "fates",
    "mean_confidence",
    "objective_of",
    "random_directions",
    "scale_wise_maximum",
    "study",
    "study_run",
    "with_far_penalty",
]
