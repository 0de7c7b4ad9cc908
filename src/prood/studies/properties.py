"""What was measured about a model, and the properties of the paper's Table 1, each with the rule that decides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from statistics import mean
from typing import Any

from prood.evaluation.asymptotics.far import Far
from prood.evaluation.robustness import Robustness, from_json

FAR = 1000.0
"""The α of x + α·n at which asymptotics are judged."""
MEANS = ("auc", "aauc", "gauc")


@dataclass(frozen=True)
class Profile:
    """A model's numbers at one radius, fractions of 1; `seconds` are those of its training, None if it had none.

    `sets` holds auc, aauc and gauc by out-distribution. `fingerprint` names the weights they belong to.
    """

    title: str
    run: str
    method: str | None
    seconds: float | None
    accuracy: float | None
    sets: dict[str, dict[str, float | None]]
    far: Far
    robustness: Robustness | None
    fingerprint: str
    properties: dict[str, str] = field(default_factory=dict)  # a mark's word by the rule's key

    def values(self, metric: str) -> list[float]:
        """A metric of every set, where it was measured."""
        found = (values[metric] for values in self.sets.values())
        return [value for value in found if value is not None]

    def mean(self, metric: str) -> float | None:
        values = self.values(metric)
        return mean(values) if values else None

    def far_auc(self) -> float:
        return self.far.auc[self.far.alphas.index(FAR)]

    def far_confidence(self) -> float | None:
        return None if self.far.confidence is None else self.far.confidence[self.far.alphas.index(FAR)]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {metric: self.mean(metric) for metric in MEANS}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Profile:
        measured = from_json({"of": "", **content})
        facts = {key: value for key, value in content.items() if key not in MEANS}
        return cls(**facts | {"far": measured.far, "robustness": measured.robustness})


Profiles = Mapping[str, Profile]
"""By the name of the run."""


class Mark(StrEnum):
    yes = "yes"
    partly = "partly"
    no = "no"
    none = "none"  # the property does not apply, or was not measured

    @property
    def sign(self) -> str:
        return {"yes": "✓", "partly": "(✓)", "no": "✗", "none": "–"}[self]


@dataclass(frozen=True)
class Rule:
    """`number` is what a profile is judged by, `judge` turns it into a mark, and `says` states both in words."""

    key: str
    title: str
    says: str
    number: Callable[[Profile], float | None]
    judge: Callable[[Profile, Profiles], Mark]

    def mark(self, profile: Profile, profiles: Profiles) -> Mark:
        return Mark.none if self.number(profile) is None else self.judge(profile, profiles)


NEAR, NOT_FAR = 0.01, 0.03
"""How far below the reference still counts as equal, and as partly so: a point, and the three of the paper's grey."""
CHANCE = 0.5
"""The AUC of a coin."""
PROVED = 0.1
ALMOST_ALL = 0.999


def _marked(yes: bool, partly: bool) -> Mark:
    return Mark.yes if yes else Mark.partly if partly else Mark.no


def _behind(number: Callable[[Profile], float | None], reference: str) -> Callable[[Profile, Profiles], Mark]:
    def judge(profile: Profile, profiles: Profiles) -> Mark:
        own, best = number(profile), number(profiles[reference]) if reference in profiles else None
        if own is None or best is None:
            return Mark.none
        behind = best - own - 1e-9  # a difference of exactly a point is within a point
        return _marked(behind <= NEAR, behind <= NOT_FAR)

    return judge


def _adversarial(profile: Profile, profiles: Profiles) -> Mark:
    values = profile.values("aauc")
    return _marked(sum(values) / len(values) >= CHANCE, max(values) >= CHANCE)


def _certified(profile: Profile, profiles: Profiles) -> Mark:
    values = profile.values("gauc")
    return _marked(sum(values) / len(values) >= PROVED, max(values) > 0)


def _asymptotic(profile: Profile, profiles: Profiles) -> Mark:
    found = profile.far_auc()
    return _marked(found >= ALMOST_ALL, found >= CHANCE)


RULES = (
    Rule(
        "accuracy",
        "high accuracy",
        f"accuracy: ✓ at most {NEAR:.0%} (absolute) below Plain's, (✓) at most {NOT_FAR:.0%}",
        lambda profile: profile.accuracy,
        _behind(lambda profile: profile.accuracy, "plain"),
    ),
    Rule(
        "clean",
        "clean OOD",
        f"mean AUC over the sets: ✓ at most {NEAR:.0%} (absolute) below OE's, (✓) at most {NOT_FAR:.0%}",
        lambda profile: profile.mean("auc"),
        _behind(lambda profile: profile.mean("auc"), "oe"),
    ),
    Rule(
        "adversarial",
        "adversarial OOD",
        f"mean AAUC over the sets, under attack: ✓ at least {CHANCE:.0%}, a coin's; (✓) at least that on one set",
        lambda profile: profile.mean("aauc"),
        _adversarial,
    ),
    Rule(
        "certificates",
        "certificates",
        f"mean GAUC over the sets, proved: ✓ at least {PROVED:.0%}, (✓) above 0 on one set",
        lambda profile: profile.mean("gauc"),
        _certified,
    ),
    Rule(
        "asymptotics",
        "asymptotics",
        f"AUC of the in-distribution against points x + {FAR:g}·n with random n in [−0.5, 0.5]^d: "
        f"✓ at least {ALMOST_ALL:.1%}, (✓) at least {CHANCE:.0%}. Measured, in random directions; there is a theorem "
        "for CCU and for ProoD with a far penalty; without one, in directions that keep a last hidden unit of g active",
        Profile.far_auc,
        _asymptotic,
    ),
)
"""The one place where a tick is decided."""


def judged(profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """The same profiles with their marks, some of which compare a profile with Plain or OE among the others."""
    by_run = {profile.run: profile for profile in profiles}
    return tuple(
        replace(profile, properties={rule.key: rule.mark(profile, by_run) for rule in RULES}) for profile in profiles
    )
