"""Optional packages: where one is missing, one line says what to install."""

from importlib.util import find_spec

from prood.errors import MissingPackage
from prood.version import __version__

UPDATE = "update Prood's checkout, or install a newer wheel"


def installing(extra: str) -> str:
    """What to type for the packages of an extra: Prood is on no index, so from its checkout or its wheel."""
    wheel = f"prood-{__version__}-py3-none-any.whl"
    return f"pip install '.[{extra}]' in Prood's checkout, or pip install '{wheel}[{extra}]' beside its wheel"


def require_packages(extra: str, *packages: str, what: str) -> None:
    """Say which of these packages of an extra are not installed; none is imported."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise MissingPackage(f"{what} needs {' and '.join(missing)}: {installing(extra)}")
