"""OpenOOD v1.5's metrics about evaluations on its lists: by set, and the mean of the near and of the far ones.

They are about images as they are, in OpenOOD's conventions: ties count half in AUROC, the out-distribution is the
positive class of FPR95, and precision is interpolated between thresholds.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean

from prood.data.public.openood import BENCHMARKS, Benchmark, seen_in
from prood.errors import Damaged
from prood.evaluation.metrics import (
    auc_ties_half,
    aupr_in_positive_interpolated,
    aupr_out_positive_interpolated,
    fpr_out_positive,
)
from prood.evaluation.results import Evaluation

METRICS = {
    "AUROC (ties half)": auc_ties_half,
    "FPR95 (out positive)": fpr_out_positive,
    "AUPR (in positive)": aupr_in_positive_interpolated,
    "AUPR (out positive)": aupr_out_positive_interpolated,
}


@dataclass(frozen=True)
class Line:
    """An out-distribution, or the mean of a group (`group` is then its name); fractions of 1, None where unknown.

    `note` says how many of the list's images were scored, if not all, and whether training saw images of the kind.
    """

    name: str
    group: str
    values: tuple[float | None, ...]
    note: str = ""
    mean: bool = False


@dataclass(frozen=True)
class Protocol:
    """What one model reaches on one benchmark."""

    model: str
    benchmark: Benchmark
    accuracy: float | None
    lines: tuple[Line, ...]


def protocols(evaluations: Iterable[Evaluation]) -> list[Protocol]:
    """One for each evaluated model and benchmark; among evaluations of a set, the one with the most images."""
    groups: dict[tuple[str, str], dict[str, Evaluation]] = {}
    inside = {one.inside: one for one in BENCHMARKS.values()}
    for one in evaluations:
        if one.inside in inside and one.outside in inside[one.inside].outside:
            group = groups.setdefault((one.model, one.inside), {})
            if one.outside not in group or one.images >= group[one.outside].images:
                group[one.outside] = one
    return [_protocol(model, inside[name], found) for (model, name), found in groups.items()]


def _protocol(model: str, benchmark: Benchmark, found: dict[str, Evaluation]) -> Protocol:
    lines = []
    for group, names in benchmark.groups.items():
        own = [_line(group, name, found.get(name)) for name in names]
        means = tuple(map(_mean, zip(*(line.values for line in own), strict=True)))
        seen = [line.name for line in own if "training" in line.note]
        note = f"training saw images of this kind: {', '.join(seen)}" if seen else ""
        lines += [*own, Line(f"{group} mean", group, means, note, mean=True)]
    return Protocol(model, benchmark, next((one.accuracy for one in found.values()), None), tuple(lines))


def _mean(values: tuple[float | None, ...]) -> float | None:
    """None where a set of the group is missing: a mean of others would pass for the protocol's."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if len(numbers) == len(values) else None


def _line(group: str, name: str, one: Evaluation | None) -> Line:
    short, nothing = name.partition(":")[2], (None,) * len(METRICS)
    if one is None:
        return Line(short, group, nothing, "not evaluated")
    notes = [] if one.available is None else [f"{one.images:,} of {one.available:,} images"]
    if one.trained_on is None:
        notes.append("what the model was trained on is not stated")
    elif seen := seen_in(name, one.trained_on):
        notes.append(f"training saw images of this kind ({', '.join(seen)})")
    with suppress(Damaged):
        if one.scores is not None:
            values = tuple(metric(one.scores.inside, one.scores.clean) for metric in METRICS.values())
            return Line(short, group, values, "; ".join(notes))
    return Line(short, group, nothing, "; ".join([*notes, "its scores are not beside the results: evaluate again"]))
