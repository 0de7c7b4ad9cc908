"""The threshold that accepts a share of the in-distribution."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.errors import ProodError
from prood.evaluation import threshold
from prood.models import threshold_at


def test_95_of_100() -> None:
    confidences = torch.arange(1, 101, dtype=torch.float64)[torch.randperm(100)] / 100
    t = threshold_at(confidences)
    assert t == 0.06
    assert (confidences >= t).sum() == 95


@pytest.mark.parametrize(("tpr", "accepted"), [(1.0, 100), (0.951, 96), (0.07, 7), (0.29, 29), (0.001, 1)])
def test_no_more_images_than_needed_are_accepted(tpr: float, accepted: int) -> None:
    """0.07·100 and 0.29·100 are rounded up and down in float64: neither may cost an image."""
    confidences = torch.arange(100, dtype=torch.float64)
    assert (confidences >= threshold_at(confidences, tpr)).sum() == accepted


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_it_is_the_largest(values: list[int], tpr: float) -> None:
    confidences = torch.tensor(values, dtype=torch.float64) / 8
    t = threshold_at(confidences, tpr)
    assert (confidences >= t).double().mean().item() >= tpr
    above = float(np.nextafter(t, 2.0))
    assert (confidences >= above).double().mean().item() < tpr
    assert t == threshold(confidences, tpr)  # the one by which the evaluation counts false positives


def test_float32_confidences_are_accepted_by_their_own_threshold() -> None:
    torch.manual_seed(0)
    confidences = torch.rand(1000, dtype=torch.float32)
    assert (confidences.double() >= threshold_at(confidences)).sum() == 950
    assert isinstance(threshold_at(confidences), float)


def test_ties_are_all_accepted() -> None:
    assert threshold_at(torch.tensor([0.5, 0.5, 0.5, 1.0]), 0.5) == 0.5


@pytest.mark.parametrize(
    ("values", "tpr", "said"),
    [
        ([], 0.95, "at least one in-distribution image"),
        ([0.5, float("nan")], 0.95, "a confidence is NaN"),
        ([0.5], 0.0, "above 0 and at most 1, not 0"),
        ([0.5], 1.01, "not 1.01"),
        ([0.5], float("nan"), "not nan"),
    ],
)
def test_what_is_refused(values: list[float], tpr: float, said: str) -> None:
    with pytest.raises(ProodError, match=said):
        threshold_at(torch.tensor(values), tpr)
