"""Published numbers measured again: the claim and what this machine finds, side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from prood.errors import Mismatch, NotFound
from prood.evaluation import Evaluation, evaluate_run
from prood.evaluation.words import radius_text, set_name
from prood.models import fingerprint, load
from prood.studies.published import Published, method_of

POINTS = 0.001
"""How far two machines may be apart: a tenth of a point. They round differently, and so rank a few images otherwise."""
JUDGED = {"accuracy": "Acc", "auc": "AUC", "gauc": "GAUC"}
COMPARED = JUDGED | {"fpr95": "FPR", "gfpr95": "GFPR"}
"""False positive rates are shown only. They hang on one image, the one at the threshold: where bounds lie close
together there, as of noise, the next one may move a rate by half a point."""


@dataclass(frozen=True)
class Claim:
    """An evaluation as it was published, and the same made again."""

    published: Evaluation
    again: Evaluation

    @property
    def same_images(self) -> bool:
        """A set of the same name may be another here: then its numbers say nothing about the claim."""
        kinds = ("inside", "outside")
        return all(self.published.fingerprints.get(kind) == self.again.fingerprints.get(kind) for kind in kinds)

    @property
    def gaps(self) -> dict[str, float]:
        """What was measured again less what was published, as fractions of 1."""
        pairs = {name: (getattr(self.published, name), getattr(self.again, name)) for name in COMPARED}
        return {name: new - old for name, (old, new) in pairs.items() if old is not None and new is not None}

    @property
    def holds(self) -> bool:
        return self.same_images and all(abs(self.gaps.get(name, 0)) <= POINTS for name in JUDGED)


@dataclass(frozen=True)
class Which:
    """Evaluations with these sets, radii and this bound; all evaluations if nothing is named."""

    outside: Sequence[str] = ()
    eps: Sequence[float] = ()
    bound: str | None = None

    def __contains__(self, one: object) -> bool:
        assert isinstance(one, Evaluation)
        return (
            (not self.outside or set_name(one.outside) in self.outside)
            and (not self.eps or any(math.isclose(one.eps, radius) for radius in self.eps))
            and self.bound in (None, method_of(one))
        )


def check_claims(
    published: Published,
    model: Path | str,
    which: Which | None = None,
    *,
    folder: Path | str | None = None,
    device: str | None = None,
    console: Console | None = None,
) -> list[Claim]:
    """Score and certify the same images again with `model`, a run's folder or the name of a shipped one.

    All of what was published without attacks, or `which` of that. The weights must be the published ones. What is
    measured goes into `folder`, by default runs/again/WEIGHTS, and existing results are reused.
    """
    weights = fingerprint(load(model)[0])
    if weights != published.weights:
        raise Mismatch(f"{model} has the weights {weights}, and {published.weights} were published: name that model")
    wanted = [one for one in published.evaluations if one.attacks is None and (which is None or one in which)]
    if not wanted:
        sets, radii = ", ".join(published.sets), ", ".join(map(radius_text, published.radii))
        raise NotFound(f"nothing published without attacks matches: choose among the sets {sets} and radii {radii}")
    place = Path("runs") / "again" / weights if folder is None else Path(folder)
    claims: list[Claim] = []
    for how in dict.fromkeys((method_of(one), one.images, one.seed) for one in wanted):  # each at one go
        alike = [one for one in wanted if (method_of(one), one.images, one.seed) == how]
        options: dict[str, Any] = dict(zip(("bound", "limit", "seed"), how, strict=True))
        results = evaluate_run(
            model,
            inside=published.inside,
            outside=list(dict.fromkeys(one.outside for one in alike)),
            eps=list(dict.fromkeys(one.eps for one in alike)),
            **options | {"attacks": None, "device": device, "console": console, "folder": place},
        )
        measured = {(one.outside, one.eps): one for one in results}
        claims += [Claim(one, measured[one.outside, one.eps]) for one in alike]
    return claims
