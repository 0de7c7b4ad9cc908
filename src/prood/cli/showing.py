"""prood report, info, reproduce pages"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import RenderableType
from rich.markup import escape
from typer import Argument, Option

from prood.cli.options import MODEL, console, folders
from prood.errors import Mismatch

if TYPE_CHECKING:
    from prood.models import Metadata

DOCS = Path("docs")
MISSING = "there is no folder {}: name the one that holds the published results"


def report(
    runs: Annotated[
        list[Path],
        Argument(
            metavar="RUN…",
            callback=folders("there is no folder {}: name runs that were evaluated"),
            help="Evaluated runs, or folders that hold evaluated runs.",
        ),
    ],
    out: Annotated[
        Path | None, Option(help="Folder for the files. Default: the run's, or the folder that holds all runs.")
    ] = None,
) -> None:
    """Compare evaluated runs: a table, and report files.

    The files are report.html, .md, .tex and .csv. report.html is self-contained: open it in a browser, or send it to
    somebody. Prood skips runs without results.
    """
    from prood.evaluation import gather
    from prood.report import results_table

    results = gather(runs)
    console().print(results_table(results, "auc", "proved"))
    folder = out or (runs[0] if len(runs) == 1 else Path(os.path.commonpath([run.resolve().parent for run in runs])))
    for ending in ("html", "md", "tex", "csv"):
        results.report(folder / f"report.{ending}")
    print(f"wrote {folder / 'report.html'}, .md, .tex and .csv")


def results(
    folder: Annotated[Path, Argument(callback=folders(MISSING), help="Folder with published results.")] = Path(
        "results"
    ),
    docs: Annotated[Path, Option(help="Folder for results.md, experiments.md and figures.")] = DOCS,
    check: Annotated[bool, Option("--check", help="Write nothing; fail if a page is out of date.")] = False,
) -> None:
    """Write the pages with results and experiments from published files."""
    from prood.atomic import write_text
    from prood.report import results_page
    from prood.report.experiments.document import PAGE, experiments_page, figures, write_page

    page, text = docs / "results.md", results_page(folder)
    if not check:
        write_text(page, text)
        print(f"wrote {page}")
        print(f"wrote {write_page(folder, docs)}")
        return
    expected = {page: text, docs / PAGE: experiments_page(folder)} | dict.fromkeys(figures(folder, docs))
    for file, content in expected.items():  # a figure only has to exist
        if not file.is_file() or (content is not None and file.read_text(encoding="utf-8") != content):
            raise Mismatch(f"{file} is out of date: write it with 'prood reproduce pages {folder} --docs {docs}'")


def _price(run: Path, about: "Metadata") -> list[RenderableType]:
    """A table: at several shares accepted, the shares of other images that are rejected and provably rejected."""
    from rich.table import Table

    from prood.evaluation.price import at_shares, at_threshold, priced
    from prood.evaluation.words import MISSING, percent, radius_text

    prices = priced(run)
    if not prices:
        return []
    points, threshold_points = (
        at_shares(prices),
        [] if about.threshold is None else at_threshold(prices, about.threshold),
    )
    radii = list(dict.fromkeys(one.eps for one in points))
    attacked = any(one.attacked is not None for one in points)
    kinds = "rejected / under attack / provably" if attacked else "rejected / provably"
    table = Table("accepted", *(f"ε = {radius_text(eps)}: {kinds}" for eps in radii), box=None)
    rows = [[one for one in points if one.accepted == share] for share in dict.fromkeys(one.accepted for one in points)]
    for row in [*rows, threshold_points] if threshold_points else rows:
        share = f"{percent(row[0].accepted)}%" + (" (the threshold)" if row is threshold_points else "")
        shares = [(one.rejected, *([one.attacked] if attacked else []), one.proved) for one in row]
        cells = (" / ".join(MISSING if part is None else f"{percent(part)}%" for part in one) for one in shares)
        table.add_row(share, *cells)
    sets = max(one.sets for one in points)
    words = "share of other images rejected, by share of the in-distribution accepted"
    return [f"[bold]price        [/] {words} (mean of {sets} {'set' if sets == 1 else 'sets'})", table]


def info(run: Annotated[Path, MODEL]) -> None:
    """Show networks, data, settings and results of a run or model."""
    from prood import evaluation, models, training
    from prood.detector.answering import threshold_words
    from prood.report import results_table

    shown, results, file = console(), evaluation.read_results(run), models.model_path(run)
    # A folder of runs with their common results, such as the quickstart's, has no model of its own.
    facts = training.describe(run) if results is None or file.is_file() else {}
    if file.is_file():
        about = models.read_metadata(run)
        if about.threshold is not None:
            facts["threshold"] = threshold_words(about.threshold, about.accept)
        if file.with_suffix(".md").is_file():
            facts["model card"] = str(file.with_suffix(".md"))
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        shown.print(f"[bold]{key:<13}[/] {escape(text)}", highlight=False, soft_wrap=True)
    if file.is_file():
        for line in _price(run, about):
            shown.print(line, soft_wrap=isinstance(line, str))
    if results is not None:
        shown.print(results_table(results))
