"""prood quickstart"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def quickstart(
    out: Annotated[Path, typer.Option(help="Folder for the runs and results.json.")] = Path("runs/quickstart"),
    seed: Annotated[int | None, typer.Option(help="Another seed than the recipe's.")] = None,
) -> None:
    """Everything on handwritten digits, in minutes on a laptop: train, combine, certify, compare.

    Digits 0–7 are what the classifier knows; photographs, materials, text, faces, noise and the digits 8 and 9 are not.
    The table shows accuracy and, for each of these, how well confidence tells it from digits: AUC on the images as
    they are, GAUC guaranteed however an attacker changes them by up to ε per pixel. An interrupted quickstart continues
    where it stopped.
    """
    from prood.cli.console import console
    from prood.quickstart import quickstart as run

    run(out, seed=seed, console=console())
