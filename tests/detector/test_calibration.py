"""The threshold's guarantee: exact for small n, kept over many draws, and what ties do to it."""

import math
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
import torch
from scipy import stats

from prood.detector import Detector, needed, order_statistic
from prood.detector.calibration import calibrated
from prood.errors import BadValue, ProodWarning
from prood.models import ProoD

PAIRS = [(0.95, 0.95), (0.5, 0.9), (0.9, 0.5), (0.99, 0.8), (0.8, 0.999), (0.3, 0.4)]


def sigmoid(scores: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-scores))


def chances(n: int, tpr: float) -> list[Fraction]:
    """P(Beta(n − k + 1, k) ≥ tpr) for k = 1 … n as binomial sums, in exact fractions."""
    r = Fraction(tpr)
    terms = [math.comb(n, j) * (1 - r) ** j * r ** (n - j) for j in range(n + 1)]
    return list(accumulate(reversed(terms[1:])))[::-1]


@pytest.mark.parametrize(("tpr", "confidence"), PAIRS)
def test_k_is_the_largest_that_exact_arithmetic_allows(tpr, confidence):
    for n in [*range(1, 40, 3), 58, 59, 93]:
        allowed = [k for k, chance in enumerate(chances(n, tpr), 1) if chance >= Fraction(confidence)]
        if allowed:
            assert order_statistic(n, accept=tpr, level=confidence) == max(allowed)
        else:
            with pytest.raises(BadValue, match=str(needed(tpr, confidence))):
                order_statistic(n, accept=tpr, level=confidence)


@pytest.mark.parametrize(("tpr", "confidence"), PAIRS)
@pytest.mark.parametrize("n", [1000, 50_000, 1_000_000])
def test_k_against_the_beta_distribution_of_scipy(n, tpr, confidence):
    k = order_statistic(n, accept=tpr, level=confidence)
    assert stats.beta.sf(tpr, n - k + 1, k) >= confidence > stats.beta.sf(tpr, n - k, k + 1)


def test_the_true_positive_rate_has_the_beta_distribution_of_the_docstring():
    # TPR of the k-th smallest of n uniform scores is 1 − s_k: by simulation.
    draws = np.sort(np.random.default_rng(0).random((20_000, 20)), 1)
    assert stats.kstest(1 - draws[:, 2], stats.beta(20 - 3 + 1, 3).cdf).pvalue > 0.01


def test_known_sample_sizes():
    # Wilks: 59 observations for 95%/95% and 93 for the second smallest; 22 for 90%/90%.
    assert (needed(0.95, 0.95), needed(0.9, 0.9), needed(0.5, 0.5)) == (59, 22, 1)
    assert [order_statistic(n, accept=0.95, level=0.95) for n in (59, 92, 93)] == [1, 1, 2]
    with pytest.raises(BadValue, match=r"58.*59"):
        order_statistic(58, accept=0.95, level=0.95)


@pytest.mark.parametrize("tpr", [1e-9, 0.1, 0.5, 0.9, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("confidence", [1e-6, 0.5, 0.95, 1 - 1e-9])
def test_as_many_as_needed_are_enough_and_one_less_is_not(tpr, confidence):
    n = needed(tpr, confidence)
    assert order_statistic(n, accept=tpr, level=confidence) >= 1
    with pytest.raises(BadValue):
        order_statistic(n - 1, accept=tpr, level=confidence)


def test_more_images_allow_a_higher_k_and_higher_demands_a_lower_one():
    rising = [order_statistic(n, accept=0.9, level=0.9) for n in range(22, 400)]
    assert rising == sorted(rising)
    assert rising[-1] > rising[0]
    for falling in (
        [order_statistic(500, accept=tpr, level=0.9) for tpr in np.linspace(0.05, 0.99, 50)],
        [order_statistic(500, accept=0.9, level=confidence) for confidence in np.linspace(0.01, 0.99, 50)],
    ):
        assert falling == sorted(falling, reverse=True)
        assert falling[-1] < falling[0]


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_probabilities_lie_between_zero_and_one(wrong):
    with pytest.raises(BadValue):
        order_statistic(100, accept=wrong, level=0.95)
    with pytest.raises(BadValue):
        order_statistic(100, accept=0.95, level=wrong)


def too_often(misses: int, splits: int, confidence: float) -> bool:
    """Whether so many misses would be a one-in-a-thousand surprise if each had probability 1 − confidence."""
    return bool(stats.binom.sf(misses - 1, splits, 1 - confidence) < 1e-3)


@pytest.mark.parametrize("draw", ["normal", "exponential", "rounded", "constant"])
@pytest.mark.parametrize(("tpr", "confidence", "n"), [(0.95, 0.95, 200), (0.8, 0.9, 60), (0.9, 0.5, 77)])
def test_the_guarantee_over_two_hundred_draws(draw, tpr, confidence, n):
    # The rate that a threshold really has is known: these are distributions, not samples.
    generator = np.random.default_rng(n)
    misses = 0
    for _ in range(200):
        scores = generator.normal(size=n) if draw == "normal" else generator.exponential(size=n)
        scores = np.ceil(scores) if draw == "rounded" else np.zeros(n) if draw == "constant" else scores
        t = calibrated(scores, sigmoid(scores), accept=tpr, level=confidence).score
        if draw == "rounded":
            true = math.exp(-(t - 1))  # P(⌈X⌉ ≥ t)
        else:
            true = {"normal": stats.norm.sf(t), "exponential": math.exp(-t), "constant": float(t <= 0)}[draw]
        misses += true < tpr
    assert not too_often(misses, 200, confidence)
    if draw in ("normal", "exponential"):  # and it is not bought with a needlessly low threshold
        assert misses > 0


def test_the_check_of_the_guarantee_can_fail():
    # The plain 5% quantile misses half of the time: that is what the guarantee is there for.
    generator = np.random.default_rng(0)
    misses = sum(stats.norm.sf(np.sort(generator.normal(size=200))[9]) < 0.95 for _ in range(200))
    assert too_often(misses, 200, 0.95)


def test_the_guarantee_on_splits_of_real_digits(detector, digits):
    # 1,000 digits split at random. How many of the others are accepted has a beta-binomial distribution: they are
    # finitely many, and that noise comes on top of the threshold's. Splits are independent, so misses are binomial.
    prediction = detector.predict(digits)
    n, rest = 300, 700
    k = order_statistic(n, accept=0.9, level=0.95)
    expected = float(stats.betabinom(rest, n - k + 1, k).cdf(math.ceil(0.9 * rest) - 1))
    generator = np.random.default_rng(1)
    rates = []
    for _ in range(200):
        order = generator.permutation(1000)
        inside, held = order[:n], order[n:]
        found = calibrated(prediction.score[inside], prediction.confidence[inside], accept=0.9, level=0.95)
        rates.append((prediction.confidence[held] >= found.threshold).mean())
    misses = int((np.asarray(rates) < 0.9).sum())
    assert expected < 0.1
    assert stats.binom.sf(misses - 1, 200, expected) > 1e-3
    assert np.mean(rates) == pytest.approx((n - k + 1) / (n + 1), abs=0.01)  # the mean of Beta(n − k + 1, k)


def test_p_values_count_the_scores_that_are_not_larger():
    found = calibrated(np.array([3.0, 1.0, 2.0, 2.0]), np.array([0.9, 0.6, 0.8, 0.8]), accept=0.4, level=0.5)
    assert found.scores.tolist() == [1.0, 2.0, 2.0, 3.0]
    assert len(found) == 4
    p = found.p_values(np.array([0.0, 1.0, 1.5, 2.0, 3.0, 4.0]))
    assert p.tolist() == [1 / 5, 2 / 5, 2 / 5, 4 / 5, 1.0, 1.0]


def test_p_values_are_super_uniform():
    # Over draws of calibration set and image together: P(p ≤ α) ≤ α. Each draw gives one p-value.
    generator = np.random.default_rng(3)
    p = []
    for _ in range(4000):
        scores = np.round(generator.normal(size=60), 1)  # with ties
        found = calibrated(scores[:-1], sigmoid(scores[:-1]), accept=0.5, level=0.5)
        p.append(found.p_values(scores[-1:])[0])
    for alpha in (1 / 60, 0.05, 0.1, 0.3, 0.7):
        assert stats.binom.sf((np.asarray(p) <= alpha).sum() - 1, 4000, alpha) > 1e-3
    assert np.quantile(p, 0.1) < 0.15  # and they are of use


def test_rejected_images_have_small_p_values():
    generator = np.random.default_rng(4)
    scores, new = generator.normal(size=200), generator.normal(size=500)
    found = calibrated(scores, sigmoid(scores), accept=0.9, level=0.9)
    rejected = sigmoid(new) < found.threshold
    assert rejected.any()
    assert (rejected == (found.p_values(new) <= found.index / 201)).all()


def test_scores_that_are_nan_are_refused():
    with pytest.raises(BadValue, match="NaN"):
        calibrated(np.array([0.1, math.nan]), np.array([0.5, math.nan]), accept=0.5, level=0.5)


# Images that are not in-distribution


def far(detector: Detector) -> Detector:
    """The same with g lower by 50: it takes all images for out-distribution."""
    return Detector(ProoD(detector.model.classifier, detector.model.discriminator, detector.shift - 50))


def test_images_that_g_rejects_are_doubted(model, digits):
    detector = far(Detector(model))
    with pytest.warns(ProodWarning, match="100% of these images") as told:
        detector.calibrate(digits)
    assert "1/K = 0.1250" in str(told[0].message)
    assert detector.threshold is not None


def test_images_like_those_of_training_are_not(model, digits, recwarn):
    Detector(ProoD(model.classifier, model.discriminator, 50)).calibrate(digits)
    assert not recwarn.list


def test_a_bare_discriminator_has_no_floor(model, digits):
    bare = model.discriminator
    with torch.no_grad():
        bare.last.bias.sub_(50)
    with pytest.warns(ProodWarning, match="100% of these images") as told:
        Detector(bare).calibrate(digits)
    assert "1/K" not in str(told[0].message)
