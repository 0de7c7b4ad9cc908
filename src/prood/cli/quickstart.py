"""prood quickstart"""

from dataclasses import replace
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
    from prood.report import results_table
    from prood.studies import quickstart as run

    shown, report = console(), out / "report.html"
    results = run(out, seed=seed, console=shown)
    results.report(report)
    shown.print(results_table(replace(results, evaluations=tuple(one for one in results if one.attacks))))
    shown.print(f"curves, histograms and the worst images: {report}", soft_wrap=True, highlight=False)
    shown.print(f"a page to try it with pictures: prood serve {out / 'prood'}", soft_wrap=True, highlight=False)
