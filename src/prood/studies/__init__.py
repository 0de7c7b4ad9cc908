"""Studies: models as a graph, the engine that makes and measures them, what is chosen, judged and published of them."""

from prood.detector.gates import Schedule
from prood.studies.claims import check_claims
from prood.studies.comparing import compare
from prood.studies.gating import fit_schedule
from prood.studies.graph import Measure, Node, Study
from prood.studies.known import STUDIES, study_of
from prood.studies.pairs import Pairs, pairs_of
from prood.studies.programs import quickstart, reproduce
from prood.studies.published import Published, read_published
from prood.studies.publishing import publish
from prood.studies.rows import Group, grouped
from prood.studies.runner import Runner
from prood.studies.shift import Candidate, choose_shift, measure, prior_from_shift, shift_from_prior, sweep

__all__ = [
    "STUDIES",
    "Candidate",
    "Group",
    "Measure",
    "Node",
    "Pairs",
    "Published",
    "Runner",
    "Schedule",
    "Study",
    "check_claims",
    "choose_shift",
    "compare",
    "fit_schedule",
    "grouped",
    "measure",
    "pairs_of",
    "prior_from_shift",
    "publish",
    "quickstart",
    "read_published",
    "reproduce",
    "shift_from_prior",
    "study_of",
    "sweep",
]
