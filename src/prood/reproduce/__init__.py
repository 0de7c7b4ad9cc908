"""The paper's experiments: its models on CIFAR, and its tables and figures on any recipe."""

from prood.reproduce.claims import Claim, check_claims, claims_table
from prood.reproduce.experiment import Experiment, perform, perform_all
from prood.reproduce.lab import LABS, Lab
from prood.reproduce.reproduction import reproduce, run_fast, ship
from prood.reproduce.study import MODELS, STUDIES, Study

__all__ = [
    "LABS",
    "MODELS",
    "STUDIES",
    "Claim",
    "Experiment",
    "Lab",
    "Study",
    "check_claims",
    "claims_table",
    "perform",
    "perform_all",
    "reproduce",
    "run_fast",
    "ship",
]
