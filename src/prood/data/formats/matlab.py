"""Variables of a MATLAB file (.mat), read with SciPy."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prood.errors import Damaged, NotFound
from prood.extras import require_packages


def read_mat(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """These variables of the file, each as MATLAB has it: at least two axes, a struct as a structured array."""
    require_packages("data", "scipy", what=f"reading {path}")
    from scipy.io import loadmat

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # Of a damaged variable SciPy warns, and then puts a text in its place, which is refused below.
            warnings.simplefilter("ignore")
            found = loadmat(file, variable_names=list(names))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise NotFound(f"there is no file {path}: fetch the set again: 'prood data fetch NAME --again'") from error
    # A foreign or truncated file can fail anywhere inside zlib or SciPy's parser, in a dozen ways.
    except Exception as error:
        raise Damaged(
            f"cannot read {path} as a MATLAB file: fetch the set again with 'prood data fetch NAME --again' "
            f"({type(error).__name__})"
        ) from error
    for name in names:
        if not isinstance(found.get(name), np.ndarray):
            raise Damaged(
                f"{path} has no readable variable '{name}': fetch the set again with 'prood data fetch NAME --again'"
            )
    return {name: found[name] for name in names}
