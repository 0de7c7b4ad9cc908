"""The price of proof, read off a model's evaluations: how much is accepted, rejected, and provably rejected."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from prood.errors import Damaged
from prood.evaluation.metrics import rejected
from prood.evaluation.results import Evaluation, read_results
from prood.evaluation.verdicts import judged
from prood.models import fingerprint, load, model_path

SHARES = (0.99, 0.95, 0.9, 0.8, 0.5)
"""Of the in-distribution, accepted: the lines of a table."""


@dataclass(frozen=True)
class Point:
    """Means over `sets` sets of other images: the share that is rejected, and the share of which it is proved.

    Proved is that every image within `eps` is rejected, too. `accepted` is the share of the in-distribution.
    """

    eps: float
    accepted: float
    rejected: float
    proved: float
    sets: int


def priced(run: Path | str) -> tuple[Evaluation, ...]:
    """The evaluations in a run's folder whose scores are those of the model that it holds now; the last of each kind.

    A model that got another gate since is another model: what was evaluated before says nothing about its verdicts.
    """
    folder = Path(run)
    found = read_results(folder) if folder.is_dir() and model_path(folder).is_file() else None
    if not found:
        return ()
    weights, last = fingerprint(load(folder)[0]), {}
    for one in found:
        with suppress(Damaged):
            if one.fingerprints.get("model") == weights and one.scores is not None and len(one.scores.inside):
                last[one.outside, one.eps] = one
    return tuple(last.values())


def at_shares(evaluations: Iterable[Evaluation], shares: Sequence[float] = SHARES) -> list[Point]:
    """A point for each radius and each share of the in-distribution that is accepted."""
    return [
        _mean(eps, [(share, *_at_share(one, share)) for one in group])
        for eps, group in _by_radius(evaluations)
        for share in shares
    ]


def at_threshold(evaluations: Iterable[Evaluation], threshold: float) -> list[Point]:
    """Where the model decides by this threshold, a point for each radius."""
    return [_mean(eps, [_at_threshold(one, threshold) for one in group]) for eps, group in _by_radius(evaluations)]


def _mean(eps: float, rows: list[tuple[float, float, float]]) -> Point:
    accepted, clean, certified = (mean(column) for column in zip(*rows, strict=True))
    return Point(eps, accepted, clean, certified, len(rows))


def _by_radius(evaluations: Iterable[Evaluation]) -> Iterator[tuple[float, list[Evaluation]]]:
    known = list(evaluations)
    for eps in sorted({one.eps for one in known}):
        yield eps, [one for one in known if one.eps == eps]


def _at_share(one: Evaluation, share: float) -> tuple[float, float]:
    assert one.scores is not None
    kinds = {"clean": one.scores.clean, "certified": one.scores.certified}
    found = rejected(one.scores.inside, kinds, [share])
    return found["clean"].item(), found["certified"].item()


def _at_threshold(one: Evaluation, threshold: float) -> tuple[float, float, float]:
    found = judged(one, threshold, one.classes)
    assert found.accepted is not None
    assert found.passed is not None
    assert found.proved is not None
    return found.accepted, 1 - found.passed, found.proved
