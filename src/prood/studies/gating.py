"""How much of the false rejections g should spend: a `Schedule`, fitted on held-out images (docs/verdict.md)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np
import torch
from torch import Tensor

from prood.detector.gates import Schedule, gate_of
from prood.errors import BadValue, UnknownName
from prood.evaluation.metrics import auc, fpr
from prood.models import Gate, Gated, ProoD
from prood.models.confidence import threshold_at
from prood.models.joint import product_logit
from prood.studies.pairs import Pairs, Scores

ACCEPTED = (0.95, 0.9, 0.8)
"""Shares of the in-distribution that are accepted where verdicts are compared."""
FIRST = tuple(np.round(np.arange(0, 1.001, 0.05), 2).tolist())
LAST = (0.3, 0.5, 0.7, 0.95)  # and the first share itself
TRUST = 0.01
"""So much GFPR a share that is higher by 1 must gain, at the beginning and at the end of a schedule: less than the
standard error on a thousand images. Where held-out images are easy, all schedules prove alike and look cheap."""
SHOWN = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)


@dataclass(frozen=True)
class Price:
    """What proofs may cost on held-out images: a higher FPR at 95% accepted, and a lower AUC; fractions of 1."""

    fpr: float
    auc: float = 0.015

    def __post_init__(self) -> None:
        if not (0 <= self.fpr <= 1 and 0 <= self.auc <= 1):
            raise BadValue(f"a price is a difference of rates between 0 and 1, not {self.fpr} and {self.auc}")


PRICES = {"default": Price(0.015), "strong": Price(0.05)}


@dataclass(frozen=True)
class Verdicts:
    """A rule on images that it was not made from: `fpr` and `gfpr` at each acceptance of ACCEPTED."""

    auc: float
    gauc: float
    fpr: tuple[float, ...]
    gfpr: tuple[float, ...]

    def cells(self) -> list[str]:
        """As `heads` says, in percent."""
        rates = [(1 - one, 1 - sure) for one, sure in zip(self.fpr, self.gfpr, strict=True)]
        return [f"{100 * one:.1f} / {100 * sure:.1f}" for one, sure in ((self.auc, self.gauc), *rates)]


@dataclass(frozen=True)
class Spending:
    """The schedule that was chosen, and the verdicts with it and without any gate."""

    schedule: Schedule
    with_it: Verdicts
    without: Verdicts


def price(name: str) -> Price:
    if name not in PRICES:
        raise UnknownName(f"unknown point {name!r}: choose {' or '.join(PRICES)}, or a share such as 0.2")
    return PRICES[name]


def fit_schedule(samples: Sequence[Pairs], shift: float, most: Price) -> Spending:
    """The schedule with the fewest images that are not provably rejected, at no more than this price.

    "Fewest" is the mean GFPR over ACCEPTED, with `TRUST` for what is spent. A price is a promise about other images: to
    what a schedule adds to the FPR comes one standard error.
    """
    bare = Schedule(0.0)
    without = judged(samples, shift, bare)
    affordable = [Spending(bare, without, without)]
    passed = [_passed(sample, shift, bare) for sample in samples]
    for schedule in _schedules():
        found = judged(samples, shift, schedule)
        extra = [_passed(sample, shift, schedule) - before for sample, before in zip(samples, passed, strict=True)]
        added = mean(one.mean().item() for one in extra)
        error = math.sqrt(sum(one.var().item() / len(one) for one in extra)) / len(extra)
        if added + error <= most.fpr and without.auc - found.auc <= most.auc:
            affordable.append(Spending(schedule, found, without))
    return min(affordable, key=lambda one: mean(one.with_it.gfpr) + TRUST * (one.schedule.provable + one.schedule.end))


def table(samples: Sequence[Pairs], shift: float) -> list[list[str]]:
    """Shares that g may spend, each with the percentages rejected and provably rejected at each acceptance."""
    lines = [[f"{share:g}", *judged(samples, shift, Schedule(share)).cells()] for share in SHOWN]
    return [["provable", *heads(ACCEPTED)], *lines]


def heads(accepted: Sequence[float]) -> list[str]:
    return ["AUC / GAUC, %", *(f"{100 * share:.0f}% accepted: rejected / provably" for share in accepted)]


def judged(samples: Sequence[Pairs], shift: float, schedule: Schedule) -> Verdicts:
    """The mean over these sets, and over halves of the in-distribution: a gate from one, verdicts from the other."""
    return verdicts([part for sample in samples for part in _halves(sample, shift, schedule)])


def verdicts(parts: Sequence[Scores]) -> Verdicts:
    """Means over these."""
    return Verdicts(
        mean(auc(inner, outer) for inner, outer, _ in parts),
        mean(auc(inner, sure) for inner, _, sure in parts),
        tuple(mean(fpr(inner, outer, share) for inner, outer, _ in parts) for share in ACCEPTED),
        tuple(mean(fpr(inner, sure, share) for inner, _, sure in parts) for share in ACCEPTED),
    )


def _passed(sample: Pairs, shift: float, schedule: Schedule) -> Tensor:
    """How often each image outside is accepted at the first of ACCEPTED, over both halves of those inside."""
    halves = list(_halves(sample, shift, schedule))
    passing = [outer >= threshold_at(inner.double().numpy(), ACCEPTED[0]) for inner, outer, _ in halves]
    return torch.stack(passing).double().mean(0)


def at_point(model: ProoD, samples: Sequence[Pairs], point: str) -> tuple[ProoD, float]:
    """The joint model with the gate of a point of PRICES, and the share that g spends first.

    All images inside make the gate: none are kept for a threshold.
    """
    shift = model.shift.item()
    schedule = fit_schedule(samples, shift, price(point)).schedule
    gate = gate_from(samples[0], shift, schedule)
    if not gate.knots:
        return model, 0.0
    model_with_gate = Gated(model.classifier, model.discriminator, gate, shift).to(model.shift.device).eval()
    return model_with_gate, schedule.provable


def gate_from(sample: Pairs, shift: float, schedule: Schedule) -> Gate:
    """The gate that the in-distribution images of a sample make."""
    in_logits = sample.g_in.double() + shift
    return gate_of(schedule, product_logit(sample.s_in, in_logits).numpy(), in_logits.numpy())


def _halves(sample: Pairs, shift: float, schedule: Schedule) -> Iterator[Scores]:
    halves = [replace(sample, s_in=sample.s_in[start::2], g_in=sample.g_in[start::2]) for start in (0, 1)]
    for one, other in (halves, halves[::-1]):
        yield other.scores(shift, gate_from(one, shift, schedule))


def _schedules() -> Iterator[Schedule]:
    for first in FIRST:
        for last in sorted({first, *(share for share in LAST if share > first)}):
            yield Schedule(first, last)
