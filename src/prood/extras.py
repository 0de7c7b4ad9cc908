"""Optional packages: where one is missing, one line says what to install."""

from importlib.util import find_spec

from prood.errors import MissingPackage


def require_packages(extra: str, *packages: str, what: str) -> None:
    """Say which of these packages of an extra are not installed; none is imported."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise MissingPackage(f"{what} needs {' and '.join(missing)}: pip install 'prood[{extra}]'")
