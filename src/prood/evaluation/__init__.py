"""Metrics, the evaluator, results as data, tables and the report."""

from prood.evaluation.cards import card
from prood.evaluation.check import BoundViolated
from prood.evaluation.evaluator import evaluate
from prood.evaluation.fusion import Pairs, best_shift, fit_fusion, pairs
from prood.evaluation.metrics import auc, auc_ties_half, bootstrap, fpr, fpr_out_positive, roc, threshold
from prood.evaluation.page import results_page
from prood.evaluation.published import Published, publish, read_published
from prood.evaluation.results import RESULTS_FILE, Evaluation, Results, Scores, read_results
from prood.evaluation.runs import evaluate_run, gather, parse_radii
from prood.evaluation.seeds import Group, Statistic, grouped
from prood.evaluation.shift import Candidate, choose_shift, measure, prior_from_shift, shift_from_prior, sweep
from prood.evaluation.table import results_table

__all__ = [
    "RESULTS_FILE",
    "BoundViolated",
    "Candidate",
    "Evaluation",
    "Group",
    "Pairs",
    "Published",
    "Results",
    "Scores",
    "Statistic",
    "auc",
    "auc_ties_half",
    "best_shift",
    "bootstrap",
    "card",
    "choose_shift",
    "evaluate",
    "evaluate_run",
    "fit_fusion",
    "fpr",
    "fpr_out_positive",
    "gather",
    "grouped",
    "measure",
    "pairs",
    "parse_radii",
    "prior_from_shift",
    "publish",
    "read_published",
    "read_results",
    "results_page",
    "results_table",
    "roc",
    "shift_from_prior",
    "sweep",
    "threshold",
]
