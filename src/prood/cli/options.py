"""Options that several commands share, and the console on which they print."""

import os
import sys
from collections.abc import Callable
from os.path import exists, expanduser, isdir
from pathlib import Path
from typing import Annotated, Any, TypeVar

from rich.console import Console
from typer import Argument, Option

from prood import recipes
from prood.errors import NotFound
from prood.pretrained import find, listed, names

T = TypeVar("T")


PATHS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".npz", ".csv", ".onnx", ".pt", ".pt2")


# These checks run before torch is imported, which takes seconds.


def formerly(**names: str) -> dict[str, Any]:
    """Settings of a command that still takes former names of options: `formerly(in_="inside")` is about --in."""
    former = {name.rstrip("_"): now for name, now in names.items()}
    return {"token_normalize_func": lambda name: former.get(name, name)}


def existing_model(model: T) -> T:
    """A folder may be a run that has no model yet."""
    if not isdir(str(model)):
        find(str(model))
    return model


def existing_paths(given: T) -> T:
    """Refuse missing images or classifiers whose names can only be paths."""
    for name in map(str, given if isinstance(given, list) else [given or ""]):
        bare = name if ":" not in name else ""
        if (os.sep in bare or bare.lower().endswith(PATHS)) and not exists(expanduser(bare)):
            raise NotFound(f"there is no file or folder '{name}': check its path")
    return given


def folders(fault: str) -> Callable[[T], T]:
    """Refuse a run without a folder, unless it is the name of a shipped model."""

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
        callback=existing_model,
        help=f"Run or file with a discriminator or joint model, or a shipped model ({listed()}).",
    ),
]
Device = Annotated[str | None, Option(help="Device, e.g. `cuda:1`. Default: a GPU if there is one.")]
Discriminator = Annotated[Path, Option(callback=existing_model, help="Run or file with a trained discriminator.")]
FirstImages = Annotated[
    int | None,
    Option("--limit", metavar="N", help="Use only the first N images of each set or folder. Default: all.", min=1),
]
ImageNames = Annotated[
    list[str],
    Argument(
        metavar="IMAGE…",
        callback=existing_paths,
        help="Pictures, folders with pictures, or names of image sets: digits:test, folder:PATH …",
    ),
]
JointModel = Annotated[
    str, Argument(callback=existing_model, help=f"Run or file with a joint model, or a shipped model ({listed()}).")
]


def _existing_models(runs: list[str]) -> list[str]:
    for run in runs:
        _, is_, place = run.partition("=")
        existing_model(place if is_ and not Path(run).exists() else run)
    return runs


JointModels = Annotated[
    list[str],
    Argument(
        metavar="[NAME=]RUN…",
        callback=_existing_models,
        help=f"Run or file with a joint model, or a shipped model ({listed()}).",
    ),
]
Bound = Annotated[
    str | None,
    Option(help="Way of bounding: best, ibp, crown-ibp, alpha-crown, crown or bab. Default: the recipe's."),
]
MODEL = Argument(callback=existing_model, help=f"A run's folder, a .safetensors file, or a shipped model ({listed()}).")
Modules = Annotated[
    list[str] | None,
    Option(
        "--module",
        metavar="FILE.py|PACKAGE.MODULE",
        help="Module that declares your own methods; Prood imports it, which runs its code. Repeatable.",
    ),
]
Prior = Annotated[
    float | None,
    Option(help="Expected fraction of out-distribution inputs, e.g. 0.1; it determines --shift."),
]
RecipeName = Annotated[str, Option("--recipe", callback=_recipe, help="Name of a bundled recipe, or a .toml file.")]
Resume = Annotated[bool, Option("--resume", help="Continue the run in this folder if one was interrupted there.")]


TrustCode = Annotated[
    bool,
    Option(
        "--trust-code",
        callback=lambda value: _trust(value),
        help="Run the model's TorchScript classifier, a program that can read and write files. Default: refuse it.",
    ),
]


def _trust(value: bool) -> None:
    """Trust TorchScript within this command. Import torch only for that, so that --help stays fast."""
    if value or "prood.models" in sys.modules:
        from prood.models.wrapped import trust

        trust(value)


def console() -> Console:
    """Standard output, as wide as the terminal or as COLUMNS says; files and pipes get unlimited width."""
    terminal = Console(emoji=False)
    if terminal.is_terminal or "COLUMNS" in os.environ:
        return terminal
    return Console(emoji=False, width=100_000)  # a table takes only the columns that it needs


def separated(texts: list[str] | None) -> list[str]:
    """All names in a repeatable option whose values are lists with commas."""
    return [name for text in texts or [] for name in text.split(",") if name]
