"""Names of classes, which many files of classifiers do not have."""

from collections import Counter
from pathlib import Path

from prood.errors import BadValue, Damaged
from prood.reading import content, json_of


def read_classes(path: Path) -> tuple[str, ...]:
    """Names of classes from a file: a JSON list, or one name a line."""
    try:
        text = content(path, 2**24).decode("utf-8-sig")  # Windows puts a mark in front
        names = json_of(text) if text.lstrip().startswith("[") else [line.strip() for line in text.splitlines()]
    except (OSError, ValueError) as error:
        raise Damaged(f"cannot read the names of the classes from {path}: {error}") from None
    names = [name for name in names if name != ""]
    if not all(isinstance(name, str) for name in names) or len(names) < 2:
        raise BadValue(f"{path} names no classes: give a JSON list of texts, or one name a line, two or more")
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise BadValue(f"{path} has the class {twice!r} twice: rename one of them")
    return tuple(names)
