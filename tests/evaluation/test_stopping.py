import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.errors import UnknownName
from prood.evaluation.metrics import auc, fpr
from prood.evaluation.options import EvaluateOptions, goals

numbers = st.floats(-5, 5).map(lambda x: round(x, 1))


@given(st.lists(numbers, min_size=1, max_size=20), st.one_of(numbers, st.just(float("inf"))), st.floats(0, 10))
def test_reaching_the_auc_goal_decides_every_metric(inside, bound, below):
    inside, bound = torch.tensor(inside, dtype=torch.float64), torch.tensor([bound], dtype=torch.float64)
    goal = goals("auc", bound, inside)
    assert goal <= bound
    at_goal = torch.where(goal.isinf(), bound.clamp_max(1e9) - below, goal)  # an infinite goal is reached by anything
    assert auc(inside, at_goal) == auc(inside, bound)
    assert fpr(inside, at_goal) == fpr(inside, bound)
    if goal.isfinite():  # and nothing below it would have done
        assert auc(inside, goal - 0.05) > auc(inside, bound)


def test_the_other_rules():
    bound, inside = torch.tensor([1.0, torch.inf]), torch.tensor([0.5])
    assert goals("bound", bound, inside, tolerance=0.25).tolist() == [0.75, torch.inf]
    assert goals("never", bound, inside).tolist() == [torch.inf, torch.inf]
    with pytest.raises(UnknownName, match="'x'"):
        EvaluateOptions(stop="x")
