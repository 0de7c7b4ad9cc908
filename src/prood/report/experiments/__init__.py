"""The paper's tables and figures, one file each; EXPERIMENTS has them in the paper's order."""

from prood.report.experiments import (
    asymptotic,
    directions,
    fpr,
    fusion,
    main,
    properties,
    radius,
    robust,
    seeds,
    separate,
    sets,
    shift,
    sizes,
)
from prood.report.experiments.experiment import Experiment, perform, perform_all

__all__ = ["EXPERIMENTS", "Experiment", "perform", "perform_all"]

EXPERIMENTS: tuple[Experiment, ...] = (
    properties.EXPERIMENT,
    main.EXPERIMENT,
    asymptotic.EXPERIMENT,
    directions.EXPERIMENT,
    separate.EXPERIMENT,
    fpr.EXPERIMENT,
    sets.EXPERIMENT,
    sizes.EXPERIMENT,
    radius.EXPERIMENT,
    seeds.EXPERIMENT,
    robust.EXPERIMENT,
    shift.EXPERIMENT,
    fusion.EXPERIMENT,
)
"""To add one, write a file with an `EXPERIMENT` and name it here."""
