"""Files that ship inside other packages: real images that work offline."""

from importlib.util import find_spec
from pathlib import Path

from prood.errors import MissingPackage


def bundled(package: str, *parts: str) -> Path:
    """The path of a file inside an installed package, found without importing the package.

    Importing would cost seconds, and scikit-image's own loaders go to the network for what is not there.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackage(f"this image set is part of the package {package}: pip install 'prood[quickstart]'")
    for folder in spec.submodule_search_locations:
        path = Path(folder, *parts)
        if path.is_file():
            return path
    raise MissingPackage(
        f"the installed package {package} does not hold {'/'.join(parts)}: pip install -U 'prood[quickstart]'"
    )
