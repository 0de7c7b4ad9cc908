import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from prood import ProodError
from prood.evaluation import auc

# Few distinct values, so that ties are common; huge, tiny and infinite ones among them.
scores = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.sampled_from([-1e30, 1e-30, 1e30, torch.inf, -torch.inf])),
    min_size=1,
    max_size=30,
)


@given(scores, scores)
@settings(deadline=None)
def test_auc_is_the_fraction_of_pairs_won_strictly(inside, outside):
    pairs = [x > z for x in inside for z in outside]
    assert auc(torch.tensor(inside), torch.tensor(outside)) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)


def test_auc_without_ties_is_scikit_learns():
    generator = np.random.default_rng(0)
    inside, outside = generator.normal(0.5, 1, 500), generator.normal(0, 1, 700)
    expected = roc_auc_score([1] * 500 + [0] * 700, np.concatenate([inside, outside]))
    assert auc(torch.tensor(inside), torch.tensor(outside)) == pytest.approx(expected, abs=1e-12)


def test_digits_that_float32_would_lose_still_rank():
    inside, outside = torch.tensor([1 + 2e-15], dtype=torch.float64), torch.tensor([1 + 1e-15], dtype=torch.float64)
    assert auc(inside, outside) == 1
    assert auc(inside.float(), outside.float()) == 0


def test_a_bound_of_infinity_loses_every_pair():
    assert auc(torch.tensor([torch.inf, 5.0]), torch.full((3,), torch.inf)) == 0


@pytest.mark.parametrize(("inside", "outside"), [([], [1.0]), ([1.0], []), ([torch.nan], [1.0]), ([1.0], [torch.nan])])
def test_no_score_or_no_number_is_an_error(inside, outside):
    with pytest.raises(ProodError):
        auc(torch.tensor(inside), torch.tensor(outside))
