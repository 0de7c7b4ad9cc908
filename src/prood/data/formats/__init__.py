"""Readers of the user's own files, and of the pictures that public sets are made of."""

from collections.abc import Iterator
from contextlib import contextmanager

from prood.errors import Damaged


@contextmanager
def reading(what: object, hint: str) -> Iterator[None]:
    """One error for a damaged file: parsers and decoders fail on one in a dozen ways, with errors of any type."""
    try:
        yield
    except Exception as error:
        raise Damaged(f"cannot read {what} ({type(error).__name__}): {hint}") from error
