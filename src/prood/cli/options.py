"""What several commands share: options that are declared once, and where they print."""

import os
import sys
from pathlib import Path
from typing import Annotated, TypeVar

from rich.console import Console
from typer import Argument, Option

from prood.pretrained import find, listed

T = TypeVar("T")


def _there(model: T) -> T:
    """Refused before torch is imported, which takes seconds. A folder may be a run that has no model yet."""
    if not Path(str(model)).is_dir():
        find(str(model))
    return model


AnyDetector = Annotated[
    str,
    Option(
        "--model",
        callback=_there,
        help=f"Run or file of a discriminator or a joint model, or a shipped one ({listed()}).",
    ),
]
Device = Annotated[str | None, Option(help="Device, e.g. `cuda:1`. Default: a GPU if there is one.")]
Discriminator = Annotated[Path, Option(callback=_there, help="Run or file of a trained discriminator.")]
FirstImages = Annotated[
    int | None, Option("--limit", help="Images of each set or folder, the first ones. Default: all.", min=1)
]
ImageNames = Annotated[
    list[str],
    Argument(metavar="IMAGE…", help="Pictures, folders of them, or image sets by name: digits:test, folder:PATH …"),
]
JointModel = Annotated[
    str, Argument(callback=_there, help=f"Run or file of a joint model, or a shipped one ({listed()}).")
]
Method = Annotated[
    str | None,
    Option(help="Of the certified bounds: best, ibp, crown-ibp, alpha-crown, crown or bab; else the recipe's."),
]
MODEL = Argument(
    callback=_there, help=f"A run's folder, a .safetensors file, or a model that comes with Prood ({listed()})."
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
RecipeName = Annotated[str, Option("--recipe", help="A recipe that comes with Prood, or a .toml file.")]
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
