"""Modules of a user's own that declare methods, networks or layers: importing one runs its code, so only on request."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from prood.errors import BadValue, NotFound, ProodError, first_line


def load_modules(names: Sequence[str], folder: Path | None = None) -> None:
    """Import each, once: a file FILE.py, or a module that Python finds by name, else as a file in the folder."""
    for name in names:
        file = Path(folder or ".", name if name.endswith(".py") else name.replace(".", "/") + ".py")
        try:
            if name.endswith(".py"):
                _load_file(file)
                continue
            try:
                import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                    raise  # the module is there, and imports another one that is not
                _load_file(file)
        except ProodError:
            raise
        except Exception as error:
            raise BadValue(f"module {name} cannot be imported: {type(error).__name__}: {first_line(error)}") from None


def _load_file(file: Path) -> None:
    path = str(file.resolve())
    if path in sys.modules:  # a file has no name that others may not have too
        return
    if not file.is_file():
        raise NotFound(f"there is no module {file}: name a FILE.py, or a module that Python finds")
    spec = spec_from_file_location(path, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path] = module_from_spec(spec)  # dataclasses look for their module here
    try:
        spec.loader.exec_module(sys.modules[path])
    except BaseException:
        del sys.modules[path]
        raise
