"""The packages of the extra `serve`, and one line for who does not have them."""

from __future__ import annotations

from importlib.util import find_spec

from prood.errors import MissingPackage

PACKAGES = ("fastapi", "uvicorn", "python_multipart")


def check_packages() -> None:
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise MissingPackage(f"the service needs {' and '.join(missing)}: pip install 'prood[serve]'")
