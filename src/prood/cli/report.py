"""prood report RUN…"""

import os
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Evaluated runs, or folders of such.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the files; else the run's, or the one that holds all runs.")
    ] = None,
) -> None:
    """Compare evaluated runs: a table here, and report.html, .md, .tex and .csv.

    report.html is one file that needs nothing else: open it in a browser, or send it to somebody. Runs that were not
    evaluated yet are left out.
    """
    from prood.cli.console import console
    from prood.evaluation import gather
    from prood.report import results_table

    results = gather(runs)
    console().print(results_table(results))
    folder = out or (runs[0] if len(runs) == 1 else Path(os.path.commonpath([run.resolve().parent for run in runs])))
    for ending in ("html", "md", "tex", "csv"):
        results.report(folder / f"report.{ending}")
    print(f"wrote {folder / 'report.html'}, .md, .tex and .csv")
