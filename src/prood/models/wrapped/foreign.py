"""Other people's code: how it is imported when it is needed, and its errors in one line."""

import importlib
from typing import Any

from prood.errors import MissingPackage


def imported(name: str, install: str) -> Any:
    """The module, or one line that says what to install."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision beside a torch that it was not built for
        raise MissingPackage(
            f"this classifier needs {name.partition('.')[0]}, which cannot be imported ({first_line(error)}): "
            f"install it with {install}"
        ) from None


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
