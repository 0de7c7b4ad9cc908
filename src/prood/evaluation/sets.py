"""Image sets by name, as they are evaluated."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch.utils.data import Dataset

from prood import data
from prood.data import ImageSet
from prood.data.formats.batches import gathered
from prood.data.stored import Damage
from prood.errors import BadValue
from prood.evaluation.options import LIMIT

Inside = ImageSet | str | Iterable[Any]
Outside = Mapping[str, ImageSet | str | Iterable[Any]] | Iterable[str] | str


def fitting_of(recipe: Mapping[str, Any] | None) -> dict[str, Any]:
    """How `load` takes the pictures of a run with this recipe: fitted to a shape or not, damaged ones too."""
    recipe = recipe or {}
    return {"shape": tuple(recipe.get("image") or ()) or None, "damaged": recipe.get("damaged", "refuse")}


def part_of(name: str, like: ImageSet, limit: int | None, seed: int, damaged: Damage = "refuse") -> ImageSet:
    """A seeded choice of `limit` images, all for None (of noise 1,000). If they stay on disk, only these are read."""
    found = data.open_set(name, like=like, count=limit or LIMIT, seed=seed, split="test", damaged=damaged)
    return (found.subset(limit, seed) if limit else found).load()


def opened(
    inside: Inside, outside: Outside, *, classes: Iterable[str] | None, limit: int | None, seed: int
) -> tuple[ImageSet, dict[str, ImageSet]]:
    """Both as sets. A name without a split means the split `test`; the names of sets become the titles of results.

    A `DataLoader`, or another iterable of batches, is read into memory whole: see `prood.data.formats.batches`.
    """
    if isinstance(inside, str):
        inside = data.load(inside, split="test").numbered_as(None if classes is None else tuple(classes))
    inside = _gathered("inside", inside)
    if isinstance(outside, str):
        outside = outside.split(",")
    named = outside if isinstance(outside, Mapping) else {name: name for name in outside}
    return inside, {
        title: part_of(one, inside, limit, seed) if isinstance(one, str) else _gathered(title, one, labelled=False)
        for title, one in named.items()
    }


def _gathered(name: str, given: ImageSet | Iterable[Any], labelled: bool = True) -> ImageSet:
    if isinstance(given, ImageSet):
        return given
    if not isinstance(given, Iterable | Dataset):
        fault = f"{name} is an image set, the name of one, or batches of images, not {type(given).__name__}"
        raise BadValue(f"{fault}: write a name with a split, such as 'digits:test'")
    return gathered(name, given, labelled=labelled)
