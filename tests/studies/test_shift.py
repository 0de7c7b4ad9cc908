import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prood.data import ImageSet
from prood.errors import BadValue
from prood.evaluation import auc
from prood.models import ProoD, score_of
from prood.studies import Candidate, choose_shift, measure, prior_from_shift, shift_from_prior, sweep
from prood.studies.shift import choice_of_shift

# A larger shift trusts the classifier more: AUC grows, GAUC falls.
CURVE = [Candidate(0, 0.90, 0.70), Candidate(1, 0.94, 0.65), Candidate(2, 0.96, 0.60), Candidate(3, 0.97, 0.40)]


@pytest.mark.parametrize(
    ("baseline", "shift"),
    [(0.0, 0), (0.90, 1), (0.93, 1), (0.94, 2), (0.95, 2), (0.96, 3), (0.97, 3), (0.99, 3)],
)
def test_the_highest_gauc_among_those_better_than_outlier_exposure(baseline, shift):
    for order in (CURVE, CURVE[::-1], CURVE[2:] + CURVE[:2]):
        assert choose_shift(order, baseline).shift == shift


def test_without_a_better_one_the_highest_auc_whatever_its_gauc():
    found = choose_shift(iter([Candidate(1, 0.8, 0.1), Candidate(2, 0.7, 0.6), Candidate(3, 0.75, 0.7)]), 0.8)
    assert found == Candidate(1, 0.8, 0.1)


def test_of_equals_the_smaller_shift():
    same = [Candidate(2, 0.92, 0.5), Candidate(1, 0.91, 0.5), Candidate(3, 0.93, 0.5)]
    assert choose_shift(same, 0.9).shift == 1
    assert choose_shift([Candidate(shift, 0.9, shift / 10) for shift in (2, 1, 3)], 0.9).shift == 1


@pytest.mark.parametrize(("tolerance", "shift"), [(0, 3), (0.009, 3), (0.011, 2), (0.029, 2), (0.031, 1), (0.5, 0)])
def test_a_little_auc_may_be_given_for_gauc(tolerance, shift):
    assert choose_shift(CURVE, 0.97, tolerance=tolerance).shift == shift


@pytest.mark.parametrize("tolerance", [-0.1, 1, float("nan")])
def test_a_tolerance_is_a_difference_of_aucs(tolerance):
    with pytest.raises(BadValue):
        choose_shift(CURVE, 0.97, tolerance=tolerance)


def test_nothing_to_choose_from():
    with pytest.raises(BadValue):
        choose_shift([], 0.9)


@torch.no_grad()
def test_measure_gives_what_the_scores_give(f, g, inside, outside):
    f[-1].weight.mul_(1e4)  # sure of its classes, so that the discriminator decides, and the bounds separate a part
    model, others = ProoD(f, g, 1.5), ImageSet("bright", inside.images)
    dark = ImageSet("dark", outside["dark"].images, torch.arange(30) % 4)
    found = measure(model, dark, others, 0.01)
    score, images = score_of(model), others.floats()
    scores = score(dark.floats())
    assert found.shift == 1.5
    assert found.auc == pytest.approx(auc(scores, score(images)), abs=1e-9)
    assert found.gauc == pytest.approx(auc(scores, score.upper_bound(images, 0.01)), abs=1e-9)
    assert found.accuracy == (model.predict(dark.floats()) == dark.labels).double().mean().item()
    wide, loose = measure(model, dark, others, 0.02), measure(model, dark, others, 0.01, bound="ibp")
    assert 0 <= wide.gauc < found.gauc < found.auc
    assert 0 <= loose.gauc < found.gauc
    assert wide.auc == loose.auc == found.auc


@torch.no_grad()
def test_a_sweep_measures_a_joint_model_for_each_shift(f, g, inside, outside):
    f[-1].weight.mul_(1e4)
    dark = ImageSet("dark", outside["dark"].images, torch.arange(30) % 4)
    others = ImageSet("bright", inside.images)
    own, found = sweep(f, g, dark, others, 0.01, (1.5, -2.0))
    assert own == pytest.approx(measure(f, dark, others, 0.01).auc, abs=1e-9)
    assert found[0].auc != found[1].auc
    for one in found:
        alone = measure(ProoD(f, g, one.shift), dark, others, 0.01)
        assert (one.shift, one.accuracy) == (alone.shift, alone.accuracy)
        assert (one.auc, one.gauc) == pytest.approx((alone.auc, alone.gauc), abs=1e-9)
    (blind,) = sweep(f, g, outside["dark"], others, 0.01, [1.5])[1]
    assert (blind.auc, blind.gauc, blind.accuracy) == (found[0].auc, found[0].gauc, None)  # no labels


def test_a_model_without_shift_or_certificate(f, g, inside, outside):
    plain = measure(f, inside, outside["dark"], 0.02, device="cpu")
    assert (plain.shift, plain.gauc) == (0.0, 0.0)
    assert plain.accuracy is not None
    bare = measure(g, inside, outside["dark"], 0.0)
    assert (bare.shift, bare.accuracy) == (0.0, None)


def test_a_shift_is_a_prior():
    assert shift_from_prior(0.5) == 0  # as the discriminator was trained
    assert shift_from_prior(0.1) == pytest.approx(math.log(9))
    assert prior_from_shift(3.0) == pytest.approx(1 / (1 + math.exp(3)))
    assert (prior_from_shift(math.inf), prior_from_shift(-math.inf)) == (0, 1)


@given(st.floats(1e-12, 1 - 1e-12))
def test_prior_and_shift_undo_each_other(fraction):
    assert prior_from_shift(shift_from_prior(fraction)) == pytest.approx(fraction, rel=1e-9)


def test_the_prior_is_that_of_the_deployed_model(f, g, inside):
    """Bayes with p̃(o) = 0.1 from densities that g stands for with p(o) = ½."""
    images = inside.floats(range(5))
    with torch.no_grad():
        p = g(images).double().sigmoid()
        expected = p * 0.9 / (p * 0.9 + (1 - p) * 0.1)
        found = ProoD(f, g, shift_from_prior(0.1)).in_logit(images).double().sigmoid()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, math.nan, 10.0])
def test_what_is_no_prior(fraction):
    with pytest.raises(BadValue):
        shift_from_prior(fraction)


def test_a_shift_or_a_prior():
    assert choice_of_shift(2.0, None) == 2.0
    assert choice_of_shift(None, 0.5) == 0.0
    assert choice_of_shift(None, None) is None
    with pytest.raises(BadValue, match=r"--shift.*--prior"):
        choice_of_shift(1.0, 0.2)
    with pytest.raises(BadValue, match="NaN"):
        prior_from_shift(math.nan)
