"""What a sample shows: never less than the truth, but for a chance of one minus the level."""

from math import comb

import numpy as np
import pytest
from scipy.stats import beta

from prood.certification.sampling import Sample, at_most, limit
from prood.errors import BadValue


def test_the_size_is_the_least_that_shows_it():
    assert Sample(at_most=0.001).wanted == 4603  # 99% confidence
    assert Sample(at_most=0.05, level=0.95).wanted == 59
    for share, level in ((0.001, 0.99), (0.02, 0.9), (0.3, 0.999)):
        size = Sample(at_most=share, level=level).wanted
        assert limit(size, 0, level) <= share < limit(size - 1, 0, level)


def test_the_limit_is_clopper_and_pearsons():
    for drawn, failed, level in ((10, 0, 0.95), (10, 9, 0.95), (4603, 0, 0.99), (1000, 3, 0.99), (50, 25, 0.5)):
        exact = beta.ppf(level, failed + 1, drawn - failed)
        assert limit(drawn, failed, level) == pytest.approx(exact, rel=1e-9)
        assert at_most(failed, drawn, limit(drawn, failed, level)) <= 1 - level  # rounded to the safe side
    assert limit(7, 7, 0.99) == 1.0


@pytest.mark.parametrize("bad", [0, 1, 3, 10, 40])
def test_drawn_without_replacement_the_statement_is_wrong_rarely_enough(bad):
    """Exactly: over all draws of n of N with K bad ones, the limit is below K/N with at most the chance 1 − level."""
    every, drawn, level = 60, 25, 0.9
    wrong = 0.0
    for seen in range(min(bad, drawn) + 1):
        if drawn - seen <= every - bad and limit(drawn, seen, level) < bad / every:
            wrong += comb(bad, seen) * comb(every - bad, drawn - seen) / comb(every, drawn)
    assert wrong <= 1 - level + 1e-12


def test_the_draw_repeats_with_its_seed_and_hits_all_alike():
    assert Sample(5, seed=1).draw(100) == Sample(5, seed=1).draw(100) != Sample(5, seed=2).draw(100)
    assert Sample(5).seed != Sample(5).seed
    assert Sample(500).draw(7) == list(range(7))
    counts = np.zeros(20)
    for seed in range(2000):
        drawn = Sample(5, seed=seed).draw(20)
        assert drawn == sorted(set(drawn))
        counts[drawn] += 1
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500 * 0.75)


def test_all_of_them_are_no_sample():
    assert Sample(10).limit(drawn=10, failed=1, count=10) == 0.1


def test_wrong_words():
    for words in ({}, {"size": 3, "at_most": 0.1}, {"at_most": 0.0}, {"at_most": 1.0}, {"size": 3, "level": 1.0}):
        with pytest.raises(BadValue):
            Sample(**words)
