"""Which models are compared, and how each comes about: by a method of the recipe, or from two that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prood.errors import ProodError
from prood.methods import METHODS
from prood.training import Recipe


@dataclass(frozen=True)
class Entry:
    """A row: its title, the folder of its run, and the method that trains it with these settings.

    Without a method it is a combination of the entry `classifier` with the discriminator.
    """

    title: str
    run: str
    method: str | None = None
    settings: tuple[str, ...] = ()
    classifier: str | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The runs that must be there before."""
        if self.classifier is not None:
            return (self.classifier, "discriminator")
        return ("discriminator",) if self.method == "prood" else ()

    @property
    def methods(self) -> tuple[str, ...]:
        return () if self.method is None else (self.method,)


ENTRIES = (
    Entry("Plain", "plain", "plain"),
    Entry("OE", "oe", "oe"),
    Entry("EB", "eb", "eb"),
    Entry("ACET", "acet", "acet"),
    Entry("ATOM", "atom", "atom"),
    Entry("GOOD80", "good80", "good", ("train.quantile=0.8",)),
    Entry("GOOD100", "good100", "good", ("train.quantile=1.0",)),
    Entry("CCU", "ccu", "ccu"),
    Entry("ProoD-Disc", "discriminator", "discriminator"),
    Entry("ProoD-S", "prood-s", classifier="oe"),
    Entry("ProoD", "prood", "prood"),
    Entry("Robust", "robust", "robust"),
    Entry("Robust-ProoD", "robust-prood", classifier="robust"),
)
"""In the order of the table, and such that what an entry needs can be made before it."""

REFERENCES = ("plain", "oe")
"""What the others are measured by: always part of a comparison."""


def available(recipe: Recipe) -> list[Entry]:
    """The entries whose methods exist and have a table in the recipe, and whose parts do."""
    found: dict[str, Entry] = {}
    for entry in ENTRIES:
        if all(method in METHODS and method in recipe.train for method in entry.methods):
            found[entry.run] = entry
    return [entry for entry in found.values() if all(run in found for run in entry.needs)]


def select(recipe: Recipe, runs: Sequence[str] = ()) -> list[Entry]:
    """The entries of these runs, by default all that the recipe can train, with what they need and the references."""
    there = {entry.run: entry for entry in available(recipe)}
    missing = [run for run in REFERENCES if run not in there]
    if missing:
        raise ProodError(f"recipe {recipe.name!r} has no table [train.{missing[0]}], which the others are measured by")
    for run in runs:
        if run not in there:
            raise ProodError(f"recipe {recipe.name!r} cannot make {run!r}: choose from {', '.join(there)}")
    wanted = set(runs or there) | set(REFERENCES)
    wanted |= {needed for run in wanted for needed in there[run].needs}
    return [entry for entry in there.values() if entry.run in wanted]


def order(entries: Sequence[Entry]) -> list[Entry]:
    """The same, each after what it needs."""
    return sorted(entries, key=lambda entry: len(entry.needs))
