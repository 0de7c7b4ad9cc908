"""What a joint score is chosen by: on scores made up, and on small networks."""

import numpy as np
import pytest
import torch

from prood.data import ImageSet
from prood.evaluation import auc, evaluate
from prood.models import Curve, Gate, Gated, ProoD
from prood.studies import Pairs, pairs_of
from prood.studies.pairs import pairs
from prood.studies.shift import Candidate, choose_shift

SHIFTS = tuple(np.arange(-8, 12.1, 0.5).tolist())
GATE = Gate((-1.0, 0.5), (-1.5, 0.25))


def made_up(seed: int, images: int = 400) -> Pairs:
    """As outlier exposure and a discriminator on CIFAR: s tells most, g varies little, and its bounds are above it."""
    random = np.random.default_rng(seed)
    g_in, g_out = random.normal(0.3, 0.7, images), 0.4 - random.gamma(0.8, 1.6, images)
    s_out = np.where(random.random(images) < 0.2, random.normal(1.0, 2.0, images), random.normal(-5.5, 0.8, images))
    values = random.normal(7.0, 4.0, images), g_in, s_out, g_out
    return Pairs(*map(torch.tensor, values), torch.tensor(g_out + random.uniform(0.2, 0.6, images)))


def test_a_measure_is_that_of_the_scores():
    sample = made_up(0)
    inside, outside, bound = sample.scores(1.5)
    assert sample.measure(1.5) == (auc(inside, outside), auc(inside, bound))
    assert (outside <= bound).all()
    assert bound.equal(sample.bound_out + 1.5)
    assert sample.classifier_auc == auc(sample.s_in, sample.s_out)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_shift_ranks_as_the_curve_of_an_old_fused_model_with_this_shift(shift):
    """So that what was published of shifts is chosen anew to the bit."""
    sample, curve = made_up(1), Curve.shifted(shift)
    inside, sure = curve(sample.s_in, sample.g_in), torch.full_like(sample.s_out, torch.inf)
    old = auc(inside, curve(sample.s_out, sample.g_out)), auc(inside, curve(sure, sample.bound_out))
    assert sample.measure(shift) == old


def test_no_shift_exceeds_g_alone():
    sample = made_up(2)
    inside, _, bound = sample.g_alone
    ceiling = auc(inside, bound)
    found = [Candidate(shift, *sample.measure(shift)) for shift in SHIFTS]
    assert all(one.gauc <= ceiling for one in found)
    chosen = choose_shift(found, sample.classifier_auc - 0.01)
    assert chosen.auc > sample.classifier_auc - 0.01
    assert chosen.gauc < ceiling


def test_a_gate_caps_scores_and_bounds():
    sample = made_up(3)
    free, capped = sample.scores(0.5), sample.scores(0.5, GATE)
    for one, other in zip(free, capped, strict=True):
        assert (other <= one).all()
        assert not other.equal(one)
    assert (capped[1] <= capped[2]).all()
    assert sample.scores(0.5, Gate())[0].equal(free[0])


@pytest.mark.slow
@torch.no_grad()
def test_pairs_measure_what_an_evaluation_measures(f, g, inside, outside):
    f[-1].weight.mul_(300)
    dark, eps = ImageSet("dark", outside["dark"].images), 0.01
    sample = pairs(f, g, dark, inside, eps)
    again = pairs_of(f, g, dark, {"noise": outside["noise"], "bright": inside}, eps)["bright"]
    assert all(
        torch.allclose(one, other) for one, other in zip(vars(sample).values(), vars(again).values(), strict=True)
    )
    middle = sample.g_in.median().item() + 1.5
    low = Gate((middle - 0.2, middle), (middle - 2.0, middle - 0.1))
    for model, gate in ((ProoD(f, g, 1.5), Gate()), (Gated(f, g, low, 1.5), low)):
        (found,) = evaluate(model, inside=dark, outside={"bright": inside}, eps=eps)
        inner, outer, bound = sample.scores(1.5, gate)
        assert (auc(inner, outer), auc(inner, bound)) == pytest.approx((found.auc, found.gauc), abs=1e-3)
        assert 0 < found.gauc < found.auc
