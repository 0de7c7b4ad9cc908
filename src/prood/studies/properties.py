"""The properties of the paper's Table 1, each with the rule that decides it from measured numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from prood.studies.profiles import FAR, Profile

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


def _behind(number: Callable[[Profile], float | None], reference: str) -> Callable[[Profile, Profiles], Mark]:
    def judge(profile: Profile, profiles: Profiles) -> Mark:
        own, best = number(profile), number(profiles[reference]) if reference in profiles else None
        if own is None or best is None:
            return Mark.none
        behind = best - own - 1e-9  # a difference of exactly a point is within a point
        return Mark.yes if behind <= NEAR else Mark.partly if behind <= NOT_FAR else Mark.no

    return judge


def _accuracy(profile: Profile) -> float | None:
    return profile.accuracy


def _clean(profile: Profile) -> float | None:
    return profile.mean("auc")


def _adversarial(profile: Profile, profiles: Profiles) -> Mark:
    values = profile.values("aauc")
    if sum(values) / len(values) >= CHANCE:
        return Mark.yes
    return Mark.partly if max(values) >= CHANCE else Mark.no


def _certified(profile: Profile, profiles: Profiles) -> Mark:
    values = profile.values("gauc")
    if sum(values) / len(values) >= PROVED:
        return Mark.yes
    return Mark.partly if max(values) > 0 else Mark.no


def _asymptotic(profile: Profile, profiles: Profiles) -> Mark:
    found = profile.far_auc()
    return Mark.yes if found >= ALMOST_ALL else Mark.partly if found >= CHANCE else Mark.no


RULES = (
    Rule(
        "accuracy",
        "high accuracy",
        f"accuracy: ✓ at most {NEAR:.0%} (absolute) below Plain's, (✓) at most {NOT_FAR:.0%}",
        _accuracy,
        _behind(_accuracy, "plain"),
    ),
    Rule(
        "clean",
        "clean OOD",
        f"mean AUC over the sets: ✓ at most {NEAR:.0%} (absolute) below OE's, (✓) at most {NOT_FAR:.0%}",
        _clean,
        _behind(_clean, "oe"),
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
        "for CCU and for ProoD with a guard; without one, in directions that keep a last hidden unit of g active",
        lambda profile: profile.far_auc(),
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
