"""The capital of a gambler: a martingale that may start at any time."""

import numpy as np
import pytest

from prood.detector.betting import P_WAYS, Capital, bets_on_p, bets_on_rejection


def test_the_capital_is_that_of_all_starts_together():
    """The recursion and the sum over every start, Σₖ w(k) Πₜ₌ₖ m(t), are the same number."""
    gains = np.random.default_rng(0).normal(scale=0.3, size=(40, 3))
    found = np.exp(Capital(3).play(gains))
    for rounds in (1, 2, 17, 40):
        starts = np.arange(1, rounds + 1)
        kept = sum(np.exp(gains[k - 1 : rounds].sum(0)).mean() / (k * (k + 1)) for k in starts)
        assert found[rounds - 1] == pytest.approx(kept + 1 / (rounds + 1))


def test_in_parts_it_is_the_same():
    gains = np.random.default_rng(1).normal(scale=0.3, size=(50, 4))
    whole, parts = Capital(4).play(gains), Capital(4)
    np.testing.assert_allclose(np.concatenate([parts.play(part) for part in np.split(gains, [1, 2, 30, 30])]), whole)


def test_bets_on_p_values_are_fair():
    """The mean gain over a uniform p is 1, so that nobody wins for sure."""
    gains = np.exp(bets_on_p((np.arange(100_000) + 0.5) / 100_000))
    assert gains.shape[1] == P_WAYS
    np.testing.assert_allclose(gains.mean(0), 1, atol=1e-3)
    assert (gains > 0).all()


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.4])
def test_bets_on_rejection_lose_at_every_rate_that_is_promised(rate):
    won, lost = np.exp(bets_on_rejection(np.array([True, False]), rate))
    np.testing.assert_allclose(rate * won + (1 - rate) * lost, 1)
    assert (0.5 * rate * won + (1 - 0.5 * rate) * lost < 1).all()
    assert (2 * rate * won + (1 - 2 * rate) * lost > 1).all()


def test_a_late_change_is_found_as_if_the_years_before_had_cost_little():
    quiet, change = np.full((10_000, 2), np.log(0.99)), np.full((10, 2), np.log(20))
    capital = np.exp(Capital(2).play(np.vstack([quiet, change])))
    assert capital[:10_000].max() < 1
    assert capital[-1] > 1000
