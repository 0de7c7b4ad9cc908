"""What a gambler owns who bets, image by image, that something has changed: a test martingale.

Every bet multiplies his capital by a number whose mean is at most 1 while nothing has changed. So by Ville's inequality
(*Étude critique de la notion de collectif*, 1939) the chance that the capital, which begins with 1, ever reaches 1/α is
at most α: whoever raises the alarm there raises a false one with probability α at most, however long he looks.

A change may come late, and a gambler who lost his capital before it finds nothing. So a share 1/(k(k + 1)) of the
capital sleeps until round k; all of these shares together are 1. A change at round T then costs a factor of about T²,
and no more (for such mixtures: Shafer and Vovk, *Game-theoretic foundations for probability and finance*, 2019).
"""

import math

import numpy as np
from numpy.typing import NDArray

from prood.models.confidence import Floats

TAILS = (0.02, 0.1, 0.3)
STAKES = (0.1, 0.4)
ODDS = (1.5, 2.5, 5.0, 10.0, 30.0)
"""How many times as high the odds of a rejection may have become."""


class Capital:
    """The capital of several ways to bet, each with an equal share; `rounds` were played, `awake` is log capital."""

    def __init__(self, ways: int, rounds: int = 0, awake: Floats | None = None) -> None:
        self.rounds = rounds
        self.awake = np.full(ways, -math.inf) if awake is None else awake

    def play(self, gains: Floats) -> Floats:
        """The log capital after each round, from the log gains (rounds, ways)."""
        rounds, ways = gains.shape
        if rounds == 0:
            return np.zeros(0)
        numbers = np.arange(self.rounds + 1, self.rounds + rounds + 1, dtype=np.float64)
        waking = -np.log(numbers) - np.log1p(numbers) - math.log(ways)
        grown = np.cumsum(gains, 0)
        # A(t) = m(t)·(A(t − 1) + w(t)), solved for the whole stack: what woke at k has grown by m(k)⋯m(t) since.
        since = np.vstack([np.zeros(ways), grown[:-1]])
        awake = np.logaddexp.accumulate(np.vstack([self.awake, waking[:, None] - since]), 0)[1:] + grown
        self.rounds, self.awake = self.rounds + rounds, awake[-1]
        return np.asarray(np.logaddexp(np.logaddexp.reduce(awake, 1), -np.log1p(numbers)))


def _events() -> tuple[Floats, Floats, Floats]:
    """Where p-values may gather, [a, b], and what is staked on it: at either end, where scores are too low or too high,
    or in the middle."""
    low = [(0.0, tail) for tail in TAILS]
    places = [*low, *((1 - high, 1.0) for _, high in low), (0.25, 0.75)]
    rows = [(first, last, stake) for first, last in places for stake in STAKES]
    first, last, stake = np.array(rows).T
    return first, last, stake


_FIRST, _LAST, _STAKE = _events()


def bets_on_p(p: Floats) -> Floats:
    """Log gains (rounds, ways) of bets that p gathers in [a, b]: log(1 − h + h·1{a ≤ p ≤ b}/(b − a)).

    Their mean gain is 1 if p is uniform, whatever was seen before.
    """
    inside = (p[:, None] >= _FIRST) & (p[:, None] <= _LAST)
    return np.where(inside, np.log1p(_STAKE * (1 / (_LAST - _FIRST) - 1)), np.log1p(-_STAKE))


def bets_on_rejection(rejected: NDArray[np.bool_], rate: float) -> Floats:
    """Log gains (rounds, ways) of bets that more than the share r = `rate` is rejected.

    They are log(q/r) for a rejection, else log((1 − q)/(1 − r)). q is the share at which the odds of a rejection are
    `ODDS` times those of r. As q > r, the mean gain is at most 1 wherever the chance of a rejection is at most r,
    whatever was seen before.
    """
    share = np.array([odds * rate / (1 - rate + odds * rate) for odds in ODDS])
    return np.where(rejected[:, None], np.log(share / rate), np.log1p(-share) - math.log1p(-rate))


P_WAYS, REJECTION_WAYS = len(_STAKE), len(ODDS)
