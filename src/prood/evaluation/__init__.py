"""Metrics, the evaluator and tables."""

from prood.evaluation.evaluator import evaluate
from prood.evaluation.metrics import auc
from prood.evaluation.table import RESULTS_FILE, read_results, results_table

__all__ = ["RESULTS_FILE", "auc", "evaluate", "read_results", "results_table"]
