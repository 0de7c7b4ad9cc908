"""Pictures that come with a model: in the folder of its name beside its file, listed there in `gallery.json`.

Only what is listed is read, so no folder that happens to bear a model's name is shown to anybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from prood.errors import Damaged
from prood.models import model_path
from prood.reading import content, json_of

LIST = "gallery.json"
LARGEST = 2**16
"""Bytes of the list, and of each picture."""
Kind = Literal["in", "out"]


@dataclass(frozen=True)
class Picture:
    """`kind` says whether it shows what the model knows."""

    name: str
    kind: Kind
    png: bytes = field(repr=False)


@dataclass(frozen=True)
class Gallery:
    """`how` says for each kind where its pictures come from and how they were picked.

    `classifier_threshold` is the confidence from which the classifier alone would accept as large a share of its own
    kind as the model does.
    """

    pictures: tuple[Picture, ...] = ()
    how: Mapping[str, str] = field(default_factory=dict)
    classifier_threshold: float | None = None


def gallery_of(run: Path | str) -> Gallery | None:
    """The one of a model; None where it has none."""
    folder = model_path(run).with_suffix("")
    if not (folder / LIST).is_file():
        return None
    try:
        facts = json_of(content(folder / LIST, LARGEST))
        pictures = tuple(Picture(one["name"], one["kind"], _png(folder, one["file"])) for one in facts["pictures"])
        least = facts["classifier_threshold"]
        texts = [*(one.name for one in pictures), *facts["how"].values()]
        sound = all(one.kind in get_args(Kind) for one in pictures) and all(isinstance(text, str) for text in texts)
        if not (sound and (least is None or 0 <= least <= 1)):
            raise ValueError("a name, a kind or a number is of another type")
        return Gallery(pictures, facts["how"], least)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fault = f"cannot read the pictures in {folder} ({error!r})"
        raise Damaged(f"{fault}: remove this folder, or install Prood again") from None


def _png(folder: Path, file: str) -> bytes:
    if Path(file).name != file:
        raise ValueError(f"{file!r} is not the name of a file")
    return content(folder / file, LARGEST)
