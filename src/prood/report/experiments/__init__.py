"""The paper's tables and figures; EXPERIMENTS has them in the paper's order."""

from prood.report.experiments import asymptotic, gates, properties, robust, sizes, tables, tradeoff
from prood.report.experiments.experiment import Experiment, perform, perform_all

__all__ = ["EXPERIMENTS", "Experiment", "perform", "perform_all"]

EXPERIMENTS: tuple[Experiment, ...] = (
    properties.EXPERIMENT,
    tables.MAIN,
    asymptotic.CONFIDENCE,
    asymptotic.DIRECTIONS,
    tables.SEPARATE,
    tables.FPR,
    tables.SETS,
    sizes.EXPERIMENT,
    tables.RADIUS,
    tables.SEEDS,
    robust.EXPERIMENT,
    tradeoff.SHIFT,
    gates.EXPERIMENT,
)
"""To add one, write an `Experiment` and name it here."""
