"""What is chosen from measurements (the shift, the fusion), and what is published of them."""

from prood.studies.fusion import Pairs, best_shift, fit_fusion, pairs
from prood.studies.published import Published, publish, read_published
from prood.studies.seeds import Group, Statistic, grouped
from prood.studies.shift import Candidate, choose_shift, measure, prior_from_shift, shift_from_prior, sweep

__all__ = [
    "Candidate",
    "Group",
    "Pairs",
    "Published",
    "Statistic",
    "best_shift",
    "choose_shift",
    "fit_fusion",
    "grouped",
    "measure",
    "pairs",
    "prior_from_shift",
    "publish",
    "read_published",
    "shift_from_prior",
    "sweep",
]
