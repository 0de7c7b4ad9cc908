"""Image sets by name, as they are evaluated."""

from collections.abc import Iterable, Mapping

from prood import data
from prood.data import ImageSet
from prood.errors import BadValue
from prood.evaluation.options import LIMIT

Outside = Mapping[str, ImageSet | str] | Iterable[str] | str


def part_of(name: str, like: ImageSet, limit: int | None, seed: int) -> ImageSet:
    """A seeded choice of `limit` images, all for None (of noise 1,000). If they stay on disk, only these are read."""
    found = data.open_set(name, like=like, count=limit or LIMIT, seed=seed, split="test")
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
