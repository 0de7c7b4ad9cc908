"""`csv:FILE`: a list of pictures and their labels, as a spreadsheet or a labelling tool writes it."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from prood.data.formats import reading
from prood.data.formats.folder import ENDINGS, Files, Names
from prood.data.formats.keeping import Own, own_set
from prood.data.images import Shape
from prood.data.sources import picture_source
from prood.data.stored import Damage, StoredSet
from prood.errors import BadValue, Damaged, NoAccess, NotFound
from prood.reading import content

PATHS = ("path", "file", "filename", "image")
LABELS = ("label", "class")


@picture_source("csv", description="your own: a CSV file with the columns path and, for labelled pictures, label")
def read_csv(path: Path, shape: Shape | None = None, damaged: Damage = "refuse") -> StoredSet:
    """The pictures that a CSV file lists, in its order.

    A relative path starts at the file's folder and stays below it; an absolute one may lead anywhere. Columns are
    found by the names in the first line; in a file without such a line, the first column is the path, the second the
    label.
    """
    rows = _rows(path)
    place, label, first = _columns(path, rows[0])
    if len(rows) == first:
        raise NotFound(f"{path} lists no pictures: write a line path,label for each")
    files, values = [], []
    for number, row in enumerate(rows[first:], 1 + first):
        if len(row) <= max(place, label or 0):
            raise Damaged(f"line {number} of {path} has {len(row)} columns, fewer than the first line: {row[:3]}")
        name = row[place].strip()
        outside = not os.path.isabs(name) and os.path.normpath(name).split(os.sep)[0] == os.pardir
        if not name or outside or "\0" in name:
            fault = f"leads outside of {path.parent}: write an absolute path" if outside else "is not a path"
            raise BadValue(f"line {number} of {path}: {name!r} {fault}")
        files.append(name)
        if label is not None:
            values.append(row[label].strip())
    own = Own(Files(path.parent, Names(files)), f"csv:{path}", os.path.abspath(path), shape)
    return own_set(own, damaged, *((None, None) if label is None else numbered(values, f"{path}")))


def numbered(values: Sequence[str], where: str) -> tuple[Tensor, tuple[str, ...]]:
    """Labels that count the classes, which are sorted by name, or by value where all names are whole numbers."""
    if missing := [place for place, value in enumerate(values, 1) if not value]:
        raise Damaged(
            f"{len(missing)} of the {len(values)} pictures in {where} have no label, first number {missing[0]}"
        )
    names = set(values)
    whole = all(name.isascii() and name.isdigit() and len(name) < 10 for name in names)
    classes = sorted(names, key=lambda name: (int(name), name)) if whole else sorted(names)
    number = {name: place for place, name in enumerate(classes)}
    return torch.tensor([number[value] for value in values]), tuple(classes)


def _rows(path: Path) -> list[list[str]]:
    try:
        with io.StringIO(content(path).decode("utf-8-sig"), newline="") as file:
            sample = file.readline()
            delimiter = max(",;\t", key=sample.count)
            file.seek(0)
            with reading(f"the list {path}", "write it as a CSV file in UTF-8"):
                rows = [row for row in csv.reader(file, delimiter=delimiter) if any(cell.strip() for cell in row)]
    except UnicodeDecodeError as error:
        raise Damaged(f"cannot read {path} as text: write it as a CSV file in UTF-8") from error
    except PermissionError as error:
        raise NoAccess(f"cannot read {path} ({error.strerror}): check its permissions") from error
    except (OSError, ValueError) as error:
        raise NotFound(f"there is no file {path}: give the path of a CSV file") from error
    if not rows:
        raise NotFound(f"{path} lists no pictures: write a line path,label for each")
    return rows


def _columns(path: Path, head: list[str]) -> tuple[int, int | None, int]:
    """Where the path and the label stand, and how many lines are not pictures."""
    names = [cell.strip().lower() for cell in head]
    places = [names.index(name) for name in PATHS if name in names]
    labels = [names.index(name) for name in LABELS if name in names]
    if places:
        return places[0], labels[0] if labels else None, 1
    if names[0].endswith(ENDINGS):
        return 0, 1 if len(names) > 1 else None, 0
    raise Damaged(f"{path} has the columns {', '.join(names)[:80]}, but none named path: rename one to path")
