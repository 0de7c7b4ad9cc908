"""Every method on one recipe, side by side: trained, evaluated and judged by the rules of the paper's first table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from prood.errors import UnknownName
from prood.evaluation import Results
from prood.evaluation.robustness import measured
from prood.studies import making
from prood.studies.graph import ATTACK, Node, Study
from prood.studies.known import REFERENCES
from prood.studies.properties import MEANS, RULES, Profile, judged
from prood.studies.runner import Runner
from prood.training import Run


@dataclass(frozen=True)
class Comparison:
    """All models at one radius, judged, with the settings that they were measured by and the results behind them."""

    profiles: tuple[Profile, ...]
    results: Results
    inside: str
    eps: float
    settings: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "format": 1,
            "inside": self.inside,
            "eps": self.eps,
            "settings": self.settings,
            "rules": {rule.key: rule.says for rule in RULES},
            "rows": [profile.to_json() for profile in self.profiles],
        }


def select(study: Study, names: Sequence[str] = ()) -> list[Node]:
    """The nodes of these names, by default all rows of the study, with what they need and the references."""
    rows = study.rows
    if missing := [name for name in REFERENCES if name not in rows]:
        raise UnknownName(f"recipe {study.name!r} has no table [train.{missing[0]}], which the others are measured by")
    if unknown := [name for name in names if name not in rows]:
        raise UnknownName(f"recipe {study.name!r} cannot make {unknown[0]!r}: choose from {', '.join(rows)}")
    return study.with_parts({*(names or rows), *REFERENCES})


def compare(runner: Runner, names: Sequence[str] = ()) -> Comparison:
    """Train and evaluate the nodes of these names, by default all, under attack; and measure what they are judged by.

    Plain and OE, and the parts of a combination, come along. Results that already exist are reused. The first radius
    is the one that properties are about.
    """
    nodes, study, (seed,) = select(runner.study, names), runner.study, runner.seeds
    replace(runner, study=replace(study, measures=())).carry_out([node.name for node in nodes])
    eps, profiles, results = runner.radii[0], [], Results()
    for node in nodes:
        run = runner.place(node.name, seed)
        found = [one for one in making.evaluate(runner, node, seed, ATTACK) if one.eps == eps]
        more = measured(run, found[0], runner.device)
        metrics = Run(run).last_metrics()
        profiles.append(
            Profile(
                title=node.title,
                run=node.name,
                method=node.method,
                seconds=None if metrics is None else float(metrics["seconds"]),
                accuracy=found[0].accuracy,
                sets={one.outside: {metric: getattr(one, metric) for metric in MEANS} for one in found},
                far=more.far,
                robustness=more.robustness,
                fingerprint=found[0].fingerprints["model"],
            )
        )
        results = results.plus(*(replace(one, model=node.title) for one in found))
    bound = study.bound or runner.recipe.evaluate.bound
    settings: dict[str, Any] = {"recipe": runner.name, "attacks": study.attacks, "method": bound}
    settings |= {"limit": study.attacked, "seed": seed}
    return Comparison(judged(profiles), results, found[0].inside, eps, settings)
