"""What somebody who deploys a model asks: at its threshold, what passes, and how much is provably rejected.

Where a model has no threshold, or its scores are not at hand, the numbers are those where 95% of the in-distribution is
accepted, and that is said.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from prood.evaluation.metrics import TPR
from prood.evaluation.results import Evaluation
from prood.evaluation.words import MISSING, labels, percent, radius_text, without_path
from prood.report.table import widest


@dataclass(frozen=True)
class Verdict:
    """Fractions of 1; `threshold` is None where that is not the model's own, and `proved` is by radius."""

    model: str
    inside: str
    outside: str
    images: int
    threshold: float | None
    accepted: float
    passed: float
    proved: dict[float, float]


def verdicts(evaluations: Iterable[Evaluation]) -> list[Verdict]:
    """One for each model and out-distribution, of all radii above 0."""
    found: dict[tuple[str, str, str], list[Evaluation]] = {}
    for one in evaluations:
        found.setdefault((one.model, one.inside, one.outside), []).append(one)
    return [_verdict(items) for items in found.values()]


def verdict_sentences(results: Iterable[Evaluation]) -> list[str]:
    """What each model does at its threshold, in a sentence."""
    return sentences(verdicts(widest(results)))


def _verdict(items: list[Evaluation]) -> Verdict:
    last = items[-1]
    own = all(one.accepted is not None for one in items) and len({one.threshold for one in items}) == 1
    shares = {one.eps: one.proved if own else one.value("proved95") for one in items if one.eps > 0}
    return Verdict(
        last.model,
        last.inside,
        last.outside,
        max(one.images for one in items),
        last.threshold if own else None,
        (last.accepted or 0.0) if own else TPR,
        (last.passed or 0.0) if own else last.fpr95,
        {eps: share for eps, share in sorted(shares.items()) if share is not None},
    )


def sentences(found: Iterable[Verdict]) -> list[str]:
    """One for each model and in-distribution, about the mean over its sets at their smallest common radius."""
    groups: dict[tuple[str, str, float | None], list[Verdict]] = {}
    for one in found:
        groups.setdefault((one.model, one.inside, one.threshold), []).append(one)
    return [_sentence(group) for group in groups.values()]


def _sentence(group: list[Verdict]) -> str:
    first = group[0]
    accepted = f"{percent(first.accepted)}% of {without_path(first.inside)}"
    passed = f"{percent(fmean(one.passed for one in group))}%"
    outside = labels(one.outside for one in group)[first.outside] if len(group) == 1 else f"{len(group)} sets outside"
    common = set.intersection(*(set(one.proved) for one in group))
    eps = min(common, default=None)
    share = 0.0 if eps is None else fmean(one.proved[eps] for one in group)
    sure = f"{percent(share)}% stay rejected whatever changes by up to {radius_text(eps)}" if eps and share else ""
    rest = f"of {outside} {passed} pass, and {sure or 'no rejection is proved'}."
    if first.threshold is None:
        return f"{first.model}, where {accepted} are accepted (no threshold of its own): {rest}"
    return f"At this threshold ({first.threshold:.4g}) {first.model} accepts {accepted}; {rest}"


def headings(radii: Iterable[float]) -> list[str]:
    proved = (f"provably rejected at ε = {radius_text(eps)}" for eps in radii)
    return ["model", "threshold", "inside accepted", "out-distribution", "passes", *proved]


def rows(found: list[Verdict], radii: Iterable[float]) -> list[list[str]]:
    """A row of cells for each, as `headings` says, in percent."""
    short = labels(one.outside for one in found)
    return [
        [
            one.model,
            MISSING if one.threshold is None else f"{one.threshold:.4g}",
            percent(one.accepted),
            short[one.outside],
            percent(one.passed),
            *(percent(one.proved[eps]) if eps in one.proved else MISSING for eps in radii),
        ]
        for one in found
    ]
