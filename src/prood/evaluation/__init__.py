"""Metrics, the evaluator, and results as data."""

from prood.evaluation.budget import Budget
from prood.evaluation.evaluator import evaluate
from prood.evaluation.measuring import BoundViolated
from prood.evaluation.metrics import auc, auc_ties_half, bootstrap, fpr, fpr_out_positive, rejected, roc, threshold
from prood.evaluation.options import EvaluateOptions, parse_radii
from prood.evaluation.results import RESULTS_FILE, Evaluation, Results, read_results
from prood.evaluation.runs import evaluate_run, gather
from prood.evaluation.scores import Scores

__all__ = [
    "RESULTS_FILE",
    "BoundViolated",
    "Budget",
    "EvaluateOptions",
    "Evaluation",
    "Results",
    "Scores",
    "auc",
    "auc_ties_half",
    "bootstrap",
    "evaluate",
    "evaluate_run",
    "fpr",
    "fpr_out_positive",
    "gather",
    "parse_radii",
    "read_results",
    "rejected",
    "roc",
    "threshold",
]
