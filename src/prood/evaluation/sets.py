"""Image sets by name, as they are evaluated."""

from collections.abc import Iterable, Mapping
from typing import Any

from prood import data
from prood.data import ImageSet
from prood.data.stored import Damage
from prood.errors import BadValue
from prood.evaluation.options import LIMIT

Outside = Mapping[str, ImageSet | str] | Iterable[str] | str


def fitting_of(recipe: Mapping[str, Any] | None) -> dict[str, Any]:
    """How `load` takes the pictures of a run with this recipe: fitted to a shape or not, damaged ones too."""
    recipe = recipe or {}
    return {"shape": tuple(recipe.get("image") or ()) or None, "damaged": recipe.get("damaged", "refuse")}


def part_of(name: str, like: ImageSet, limit: int | None, seed: int, damaged: Damage = "refuse") -> ImageSet:
    """A seeded choice of `limit` images, all for None (of noise 1,000). If they stay on disk, only these are read."""
    found = data.open_set(name, like=like, count=limit or LIMIT, seed=seed, split="test", damaged=damaged)
    return (found.subset(limit, seed) if limit else found).load()


def opened(
    inside: ImageSet | str, outside: Outside, *, classes: Iterable[str] | None, limit: int | None, seed: int
) -> tuple[ImageSet, dict[str, ImageSet]]:
    """Both as sets. A name without a split means the split `test`; the names of sets become the titles of results."""
    if isinstance(inside, str):
        inside = data.load(inside, split="test").numbered_as(None if classes is None else tuple(classes))
    if not isinstance(inside, ImageSet):
        raise BadValue(f"inside is an image set, or the name of one, not {type(inside).__name__}: 'digits:test'")
    if isinstance(outside, str):
        outside = outside.split(",")
    named = outside if isinstance(outside, Mapping) else {name: name for name in outside}
    return inside, {
        title: part_of(one, inside, limit, seed) if isinstance(one, str) else one for title, one in named.items()
    }
