"""Metrics, the evaluator, results as data, tables and the report."""

from prood.evaluation.cards import card
from prood.evaluation.check import BoundViolated
from prood.evaluation.evaluator import evaluate
from prood.evaluation.metrics import auc, auc_ties_half, bootstrap, fpr, fpr_out_positive, roc, threshold
from prood.evaluation.page import results_page
from prood.evaluation.published import Published, publish, read_published
from prood.evaluation.results import RESULTS_FILE, Evaluation, Results, Scores, read_results
from prood.evaluation.runs import evaluate_run, gather, parse_radii
from prood.evaluation.seeds import Group, Statistic, grouped
from prood.evaluation.shift import Candidate, choose_shift, measure
from prood.evaluation.table import results_table

__all__ = [
    "RESULTS_FILE",
    "BoundViolated",
    "Candidate",
    "Evaluation",
    "Group",
    "Published",
    "Results",
    "Scores",
    "Statistic",
    "auc",
    "auc_ties_half",
    "bootstrap",
    "card",
    "choose_shift",
    "evaluate",
    "evaluate_run",
    "fpr",
    "fpr_out_positive",
    "gather",
    "grouped",
    "measure",
    "parse_radii",
    "publish",
    "read_published",
    "read_results",
    "results_page",
    "results_table",
    "roc",
    "threshold",
]
