"""Schedules that are fitted on held-out images: prices are kept, proofs are gained, and what cannot be is refused."""

import numpy as np
import pytest
import torch

from prood.detector.gates import Schedule
from prood.errors import BadValue
from prood.models import Gated, ProoD, discriminator, small
from prood.studies import Pairs, gating
from prood.studies.gating import ACCEPTED, PRICES, Price, fit_schedule, judged, price, table

SHIFT = 1.0


@pytest.fixture(scope="module")
def sample():
    """A classifier that tells better than g, as on photographs, and bounds a little above g."""
    random = np.random.default_rng(0)
    g_in, g_out = 2 - random.gamma(2.0, 0.5, 1500), 1.2 - random.gamma(2.0, 1.0, 600)
    s_in, s_out = random.normal(3, 2, 1500), random.normal(0, 2, 600)
    bound = np.minimum(g_out + random.exponential(0.3, 600), 2)
    return Pairs(*(torch.from_numpy(values) for values in (s_in, g_in, s_out, g_out, bound)))


@pytest.mark.parametrize("name", PRICES)
def test_a_fitted_schedule_keeps_its_price_and_proves_more(sample, name):
    found = fit_schedule([sample], SHIFT, PRICES[name])
    assert found.with_it.fpr[0] - found.without.fpr[0] <= PRICES[name].fpr
    assert found.without.auc - found.with_it.auc <= PRICES[name].auc
    assert sum(found.with_it.gfpr) < sum(found.without.gfpr)
    assert found.without == judged([sample], SHIFT, Schedule(0.0))


def test_a_price_is_kept_with_room_for_chance(sample):
    """One standard error: with a tenth of the images outside, less is spent at the same price."""
    few = Pairs(sample.s_in, sample.g_in, sample.s_out[::10], sample.g_out[::10], sample.bound_out[::10])
    repeated = Pairs(few.s_in, few.g_in, *(values.repeat(10) for values in (few.s_out, few.g_out, few.bound_out)))
    sure, unsure = (fit_schedule([one], SHIFT, Price(0.05)).schedule for one in (repeated, few))
    assert unsure.provable < sure.provable


def test_a_point_gives_a_model_its_gate(sample):
    joint = ProoD(small(3, width=4), discriminator("digits-XS", image=(1, 8, 8)), SHIFT)
    made, provable = gating.at_point(joint, [sample], "strong")
    schedule = fit_schedule([sample], SHIFT, PRICES["strong"]).schedule
    assert isinstance(made, Gated)
    assert (made.gate, provable) == (gating.gate_from(sample, SHIFT, schedule), schedule.provable)
    hopeless = Pairs(sample.s_in, sample.g_in, sample.s_out, sample.g_in[:600], sample.bound_out + 9)
    assert gating.at_point(joint, [hopeless], "default") == (joint, 0.0)


def test_a_higher_price_proves_no_less(sample):
    cheap, dear = (fit_schedule([sample], SHIFT, PRICES[name]) for name in ("default", "strong"))
    assert sum(dear.with_it.gfpr) <= sum(cheap.with_it.gfpr)


def test_where_g_ranks_worse_the_last_share_stays_that_of_the_beginning():
    """A share that grows with the level costs several times the AUC; the constant one lowers both rates."""
    random, count = np.random.default_rng(0), 1500
    s_in, s_out, g_in = random.normal(4, 2.5, count), random.normal(1.36, 2.5, count), 3 - random.gamma(2.0, 0.8, count)
    far = random.random(count) < 0.25  # of these g is sure, and of no others
    g_out = np.where(far, -2 - random.gamma(2.0, 0.8, count), 3 - random.gamma(2.0, 1.0, count))
    values = (s_in, g_in, s_out, g_out, g_out + 0.6 * random.random(count))
    weak = [Pairs(*(torch.from_numpy(value) for value in values))]
    found = fit_schedule(weak, 2.0, PRICES["default"])
    assert found.schedule.end == found.schedule.provable >= 0.3
    assert found.without.auc - found.with_it.auc <= PRICES["default"].auc
    assert found.with_it.fpr[0] <= found.without.fpr[0] + PRICES["default"].fpr
    assert found.with_it.gfpr[0] <= found.without.gfpr[0] - 0.03
    growing = judged(weak, 2.0, Schedule(found.schedule.provable, 0.95))
    assert found.without.auc - growing.auc > 3 * (found.without.auc - found.with_it.auc)


def test_verdicts_are_means_over_sets(sample):
    other = Pairs(sample.s_in, sample.g_in, sample.s_out - 3, sample.g_out, sample.bound_out)
    one, two, both = (judged(sets, SHIFT, Schedule(0.3)) for sets in ([sample], [other], [sample, other]))
    assert both.auc == pytest.approx((one.auc + two.auc) / 2)
    assert both.fpr == pytest.approx([(a + b) / 2 for a, b in zip(one.fpr, two.fpr, strict=True)])


def test_proofs_never_reject_more_than_there_is_to_reject(sample):
    for share in (0.0, 0.3, 0.9):
        found = judged([sample], SHIFT, Schedule(share))
        assert found.gauc <= found.auc
        assert all(sure >= clean for clean, sure in zip(found.fpr, found.gfpr, strict=True))
        assert list(found.fpr) == sorted(found.fpr, reverse=True)


def test_the_table_has_a_line_for_each_share(sample):
    head, *lines = table([sample], SHIFT)
    assert len(head) == 2 + len(ACCEPTED)
    assert all(len(line) == len(head) for line in lines)
    assert lines[0][0] == "0"


def test_points_and_prices():
    assert price("default").fpr < price("strong").fpr
    with pytest.raises(BadValue):
        Price(-0.1)
