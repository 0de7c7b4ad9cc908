"""Rows of tables: the seeds of one of our models together, and the paper's rows, transcribed into paper.json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from statistics import fmean, stdev
from typing import Any

from prood.errors import AlreadyThere
from prood.evaluation.results import Evaluation
from prood.evaluation.words import PROVED, percent
from prood.studies.published import ATTACKED, Published, method_of, strength


@dataclass(frozen=True)
class Statistic:
    """A mean and, of several values, their sample standard deviation; fractions of 1."""

    mean: float
    deviation: float | None = None
    count: int | None = None

    @staticmethod
    def of(values: list[float]) -> Statistic | None:
        if not values:
            return None
        return Statistic(fmean(values), stdev(values) if len(values) > 1 else None, len(values))

    def text(self, seeds: int = 1) -> str:
        """In percent, in a row of `seeds` seeds. A cell with fewer states their number; one has no deviation."""
        words = [percent(self.mean)]
        words += [] if self.deviation is None else [f"± {percent(self.deviation)}"]
        words += [f"({self.count})"] if self.count is not None and 1 < self.count < seeds else []
        return " ".join(words)


@dataclass(frozen=True)
class Group:
    """The seeds of one model: the same title, in-distribution and training out-distribution."""

    members: tuple[Published, ...]

    @property
    def title(self) -> str:
        return self.members[0].title

    @property
    def inside(self) -> str:
        return self.members[0].inside

    @property
    def outside(self) -> str:
        return self.members[0].outside

    @property
    def shifts(self) -> list[float]:
        """Shifts of joint models; one number if the seeds agree."""
        return sorted({member.shift for member in self.members if member.shift is not None})

    def statistic(self, metric: str, outside: str, eps: float) -> Statistic | None:
        """Over the seeds that have the metric, or were attacked the most strongly; None if none has."""
        values = [one.value(metric) for one in self.used(metric, outside, eps)]
        return Statistic.of([float(value) for value in values if value is not None])

    def used(self, metric: str, outside: str, eps: float) -> list[Evaluation]:
        """What `statistic` is of, one evaluation a seed."""
        members = self._alike(outside, eps).members if metric in ("gauc", "gfpr95", *PROVED) else self.members
        if metric in ATTACKED:
            members = self._most_attacked(outside, eps)
        return [one for member in members if (one := member.best(metric, outside, eps))]

    def accuracy(self) -> Statistic | None:
        found = [[one.accuracy for one in member.evaluations if one.accuracy is not None] for member in self.members]
        return Statistic.of([values[-1] for values in found if values])

    def methods(self, outside: str, eps: float) -> set[str]:
        """The methods that prove the guaranteed AUCs; none where nothing is proved."""
        return {method_of(one) for one in self.used("gauc", outside, eps) if one.gauc > 0}

    def evaluated(self, sets: Collection[str], eps: float) -> Group:
        """The seeds that were evaluated at this radius on any of the sets; all of them, if none was."""
        found = tuple(member for member in self.members if any(member.at(name, eps) for name in sets))
        return Group(found or self.members)

    def only(self, *methods: str) -> Group:
        """The same models, as if only these methods had certified them."""

        def kept(member: Published) -> Published:
            return replace(member, evaluations=tuple(one for one in member.evaluations if method_of(one) in methods))

        return Group(tuple(map(kept, self.members)))

    def _alike(self, outside: str, eps: float) -> Group:
        """As if only methods that all seeds were certified by had been used: else they would differ by the method."""
        used = [{method_of(one) for one in member.at(outside, eps)} for member in self.members]
        shared = set.intersection(*(methods for methods in used if methods)) if any(used) else set()
        return self.only(*shared) if shared else self

    def _most_attacked(self, outside: str, eps: float) -> tuple[Published, ...]:
        """The seeds that the strongest attack has seen: a weaker one finds less, and would look like a better seed."""
        attacks = [max(map(strength, member.at(outside, eps)), default=0) for member in self.members]
        return tuple(member for member, one in zip(self.members, attacks, strict=True) if one == max(attacks))


def grouped(published: Iterable[Published]) -> list[Group]:
    """The models with all their seeds, in order of appearance."""
    groups: dict[tuple[str, str, str], list[Published]] = {}
    for one in published:
        others = groups.setdefault((one.inside, one.outside, one.title), [])
        for other in others:
            if other.seed == one.seed:
                same = f"{other.file} and {one.file} are both {one.title!r} of seed {one.seed}"
                raise AlreadyThere(f"{same}: publish one of them with another title or seed")
        others.append(one)
    return [Group(tuple(members)) for members in groups.values()]


# The paper's

# Others are compared with 80M Tiny Images, which CIFAR-10 and CIFAR-100 were drawn from.
STANDS_FOR = {"openimages": "OpenImages", "natural32": "OpenImages", "not-rimgnet-mini": "NotR.ImgNet"}


def _papers(name: str) -> str:
    """What the paper calls a set: the sets in small are parts of its sets."""
    return name.removesuffix("-mini")


@dataclass(frozen=True)
class PaperRow:
    """A row of a table of the paper, as printed: in percent."""

    table: Mapping[str, Any]
    values: Mapping[str, Any]

    @property
    def title(self) -> str:
        return str(self.values["title"])

    @property
    def name(self) -> str:
        shift, runs = self.values["shift"], self.table["runs"]
        words = ["paper", self.table["outside"], f"Δ = {shift}" if shift is not None else ""]
        return ", ".join(filter(None, [*words, f"{runs} seeds" if runs > 1 else ""]))

    def statistic(self, metric: str, outside: str, eps: float) -> Statistic | None:
        place = self.table["metrics"].index(metric)
        return self._statistic(lambda values: values.get(_papers(outside), [None] * 3)[place])

    def accuracy(self) -> Statistic | None:
        return self._statistic(lambda values: values["accuracy"])

    def methods(self, outside: str, eps: float) -> set[str]:
        proved = self.statistic("gauc", outside, eps)
        return {"ibp"} if proved and proved.mean > 0 else set()

    def _statistic(self, read: Callable[[Mapping[str, Any]], float | None]) -> Statistic | None:
        mean, spread = read(self.values), self.values.get("deviation")
        deviation = read(spread) if spread else None
        return None if mean is None else Statistic(mean / 100, None if deviation is None else deviation / 100)


@cache
def paper() -> dict[str, Any]:
    """The content of paper.json: its source, and its tables."""
    return dict(json.loads(resources.files("prood.studies").joinpath("paper.json").read_text(encoding="utf-8")))


def paper_rows(inside: str, outside: str, eps: float, metrics: list[str]) -> list[PaperRow]:
    """The paper's rows at this radius, first those of models trained against what `outside` stands for.

    Of models that it trained only against something else, those; `PaperRow.name` says against what.
    """
    rows = [
        PaperRow(table, values)
        for table in paper()["tables"]
        if table["inside"] == _papers(inside) and math.isclose(table["eps"], eps) and table["metrics"] == metrics
        for values in table["rows"]
    ]
    alike = [row for row in rows if row.table["outside"] == STANDS_FOR.get(outside, "80M Tiny Images")]
    titles = {row.title for row in alike}
    return alike + [row for row in rows if row.title not in titles]
