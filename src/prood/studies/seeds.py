"""Several seeds of the same model: means and standard deviations of what was published of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from prood.errors import AlreadyThere
from prood.evaluation.results import Evaluation
from prood.evaluation.words import percent
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
        """In percent, in a row of so many seeds: of fewer, but several, it says of how many. One has no deviation."""
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
        """Of joint models; one number where the seeds agree."""
        return sorted({member.shift for member in self.members if member.shift is not None})

    def statistic(self, metric: str, outside: str, eps: float) -> Statistic | None:
        """Over the seeds that have the metric, or were attacked the most strongly; None if none has."""
        return Statistic.of([float(getattr(one, metric)) for one in self.used(metric, outside, eps)])

    def used(self, metric: str, outside: str, eps: float) -> list[Evaluation]:
        """What `statistic` is of, one evaluation a seed."""
        members = self._alike(outside, eps).members if metric in ("gauc", "gfpr95") else self.members
        if metric in ATTACKED:
            members = self._most_attacked(outside, eps)
        return [one for member in members if (one := member.best(metric, outside, eps))]

    def accuracy(self) -> Statistic | None:
        found = [[one.accuracy for one in member.evaluations if one.accuracy is not None] for member in self.members]
        return Statistic.of([values[-1] for values in found if values])

    def methods(self, outside: str, eps: float) -> set[str]:
        """The methods that prove the guaranteed AUCs; none where nothing is proved."""
        return {method_of(one) for one in self.used("gauc", outside, eps) if one.gauc > 0}

    def evaluated(self, sets: Iterable[str], eps: float) -> Group:
        """The seeds that were evaluated at this radius on any of the sets; all of them, if none was."""
        names = list(sets)
        found = tuple(member for member in self.members if any(member.at(name, eps) for name in names))
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
