"""The price of proof, read off a model's evaluations: how much is accepted, rejected, and provably rejected."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from prood.errors import Damaged
from prood.evaluation.metrics import rejected
from prood.evaluation.results import Evaluation, read_results
from prood.evaluation.verdicts import judged
from prood.models import fingerprint, load, model_path
from prood.models.confidence import confidence_of

SHARES = (0.99, 0.95, 0.9, 0.8, 0.5)
"""Accepted shares of the in-distribution, a line of the table each."""


Row = tuple[float, float, float, float | None]
"""The shares accepted, rejected, provably rejected, and rejected under attack, of one set."""


@dataclass(frozen=True)
class Point:
    """Means over `sets` sets of other images: the share that is rejected, and the share that is provably rejected.

    Proved is that every image within `eps` is rejected, too. `attacked` is the share that is rejected under attack, if
    all of these images were attacked. `accepted` is the share of the in-distribution.
    """

    eps: float
    accepted: float
    rejected: float
    proved: float
    sets: int
    attacked: float | None = None


def priced(run: Path | str) -> tuple[Evaluation, ...]:
    """The evaluations in a run's folder whose scores are those of the model that it holds now, on the most images each.

    A model that got another gate since is another model: what was evaluated before says nothing about its verdicts.
    """
    folder = Path(run)
    found = read_results(folder) if folder.is_dir() and model_path(folder).is_file() else None
    if not found:
        return ()
    weights, widest = fingerprint(load(folder)[0]), dict[tuple[str, float], Evaluation]()
    for one in found:
        with suppress(Damaged):
            if one.fingerprints.get("model") == weights and one.scores is not None and len(one.scores.inside):
                before = widest.get((one.outside, one.eps))
                if before is None or one.images >= before.images:  # attacks with a budget see fewer
                    widest[one.outside, one.eps] = one
    return tuple(widest.values())


def at_shares(evaluations: Iterable[Evaluation], shares: Sequence[float] = SHARES) -> list[Point]:
    """A point for each radius and each share of the in-distribution that is accepted."""
    return [
        _mean(eps, [_at_share(one, share) for one in group])
        for eps, group in _by_radius(evaluations)
        for share in shares
    ]


def at_threshold(evaluations: Iterable[Evaluation], threshold: float) -> list[Point]:
    """Where the model decides by this threshold, a point for each radius."""
    return [_mean(eps, [_at_threshold(one, threshold) for one in group]) for eps, group in _by_radius(evaluations)]


def _mean(eps: float, rows: list[Row]) -> Point:
    accepted, clean, certified, attacked = zip(*rows, strict=True)
    under = [share for share in attacked if share is not None]
    return Point(
        eps, mean(accepted), mean(clean), mean(certified), len(rows), mean(under) if len(under) == len(rows) else None
    )


def _by_radius(evaluations: Iterable[Evaluation]) -> Iterator[tuple[float, list[Evaluation]]]:
    listed = list(evaluations)
    for eps in sorted({one.eps for one in listed}):
        yield eps, [one for one in listed if one.eps == eps]


def _at_share(one: Evaluation, share: float) -> Row:
    assert one.scores is not None
    kinds = {"clean": one.scores.clean, "certified": one.scores.certified, "attacked": one.scores.attacked}
    known = {name: values for name, values in kinds.items() if values is not None}
    found = {name: values.item() for name, values in rejected(one.scores.inside, known, [share]).items()}
    return share, found["clean"], found["certified"], found.get("attacked")


def _at_threshold(one: Evaluation, threshold: float) -> Row:
    found = judged(one, threshold, one.classes)
    assert one.scores is not None
    assert found.accepted is not None
    assert found.passed is not None
    assert found.proved is not None
    attacked = one.scores.attacked
    if attacked is not None:
        values = attacked if one.classes is None else confidence_of(attacked, one.classes)
        return found.accepted, 1 - found.passed, found.proved, float(np.mean(values < threshold))
    return found.accepted, 1 - found.passed, found.proved, None
