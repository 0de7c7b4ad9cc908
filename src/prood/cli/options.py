"""What several commands share: options that are declared once, and where they print."""

import os
import sys
from collections.abc import Callable
from os.path import exists, expanduser, isdir
from pathlib import Path
from typing import Annotated, TypeVar

from rich.console import Console
from typer import Argument, Option

from prood import recipes
from prood.errors import NotFound
from prood.pretrained import find, listed, names

T = TypeVar("T")


PATHS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".npz", ".csv", ".onnx", ".pt", ".pt2")


# What is wrong is refused before torch is imported, which takes seconds.


def there(model: T) -> T:
    """A folder may be a run that has no model yet."""
    if not isdir(str(model)):
        find(str(model))
    return model


def paths(given: T) -> T:
    """Images or a classifier, by names that can only be paths."""
    for name in map(str, given if isinstance(given, list) else [given or ""]):
        bare = name if ":" not in name else ""
        if (os.sep in bare or bare.lower().endswith(PATHS)) and not exists(expanduser(bare)):
            raise NotFound(f"there is no file or folder '{name}': check its path")
    return given


def folders(fault: str) -> Callable[[T], T]:
    """Of runs; the shipped ones are names."""

    def check(runs: T) -> T:
        for run in runs if isinstance(runs, list) else [runs]:
            if not isdir(str(run)) and str(run) not in names() and not str(run).startswith("hf:"):
                raise NotFound(fault.format(run))
        return runs

    return check


def _recipe(name: T) -> T:
    recipes.find(str(name))
    return name


AnyDetector = Annotated[
    str,
    Option(
        "--model",
        callback=there,
        help=f"Run or file of a discriminator or a joint model, or a shipped one ({listed()}).",
    ),
]
Device = Annotated[str | None, Option(help="Device, e.g. `cuda:1`. Default: a GPU if there is one.")]
Discriminator = Annotated[Path, Option(callback=there, help="Run or file of a trained discriminator.")]
FirstImages = Annotated[
    int | None, Option("--limit", help="Images of each set or folder, the first ones. Default: all.", min=1)
]
ImageNames = Annotated[
    list[str],
    Argument(
        metavar="IMAGE…",
        callback=paths,
        help="Pictures, folders of them, or image sets by name: digits:test, folder:PATH …",
    ),
]
JointModel = Annotated[
    str, Argument(callback=there, help=f"Run or file of a joint model, or a shipped one ({listed()}).")
]


def _all_there(runs: list[str]) -> list[str]:
    for run in runs:
        _, is_, place = run.partition("=")
        there(place if is_ and not Path(run).exists() else run)
    return runs


JointModels = Annotated[
    list[str],
    Argument(
        metavar="[NAME=]RUN…",
        callback=_all_there,
        help=f"Run or file of a joint model, or a shipped one ({listed()}).",
    ),
]
Method = Annotated[
    str | None,
    Option(help="Of the certified bounds: best, ibp, crown-ibp, alpha-crown, crown or bab; else the recipe's."),
]
MODEL = Argument(
    callback=there, help=f"A run's folder, a .safetensors file, or a model that comes with Prood ({listed()})."
)
Modules = Annotated[
    list[str] | None,
    Option(
        "--module",
        metavar="FILE.py|PACKAGE.MODULE",
        help="A module that declares methods of your own; importing it runs its code. May be given several times.",
    ),
]
Prior = Annotated[
    float | None,
    Option(help="Instead of --shift: the fraction of inputs, 0.1 say, that you expect to be out-distribution."),
]
RecipeName = Annotated[
    str, Option("--recipe", callback=_recipe, help="A recipe that comes with Prood, or a .toml file.")
]
Resume = Annotated[bool, Option("--resume", help="Continue the run in this folder, if there is one.")]


TrustCode = Annotated[
    bool,
    Option(
        "--trust-code",
        callback=lambda value: _trust(value),
        help="Run TorchScript that comes with the model: a program with files in its reach. Default: refuse it.",
    ),
]


def _trust(value: bool) -> None:
    """For this command. Torch is imported where somebody trusts, not where somebody only asks for help."""
    if value or "prood.models" in sys.modules:
        from prood.models.wrapped import trust

        trust(value)


def console() -> Console:
    """Standard output: a terminal has a width, a file or a pipe has none. COLUMNS, where it is set, holds for both."""
    found = Console(emoji=False)
    if found.is_terminal or "COLUMNS" in os.environ:
        return found
    return Console(
        emoji=False, width=100_000
    )  # as many columns as a table needs: it is no wider than what stands in it


def separated(texts: list[str] | None) -> list[str]:
    """The names of an option that has commas, and that may be given several times."""
    return [name for text in texts or [] for name in text.split(",") if name]
