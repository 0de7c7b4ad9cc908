"""prood report, results, info: what was found, shown"""

import json
import os
from pathlib import Path
from typing import Annotated

from rich.markup import escape
from typer import Argument, Option

from prood.cli.options import MODEL, console
from prood.errors import Mismatch

DOCS = Path("docs")


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN…", help="Evaluated runs, or folders of such.")],
    out: Annotated[
        Path | None, Option(help="Folder for the files; else the run's, or the one that holds all runs.")
    ] = None,
) -> None:
    """Compare evaluated runs: a table here, and report.html, .md, .tex and .csv.

    report.html is one file that needs nothing else: open it in a browser, or send it to somebody. Runs that were not
    evaluated yet are left out.
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
    folder: Annotated[Path, Argument(help="Folder of published results.")] = Path("results"),
    docs: Annotated[Path, Option(help="Folder for the pages results.md and experiments.md, and for figures.")] = DOCS,
    check: Annotated[
        bool, Option("--check", help="Write nothing; fail if a page is not what would be written.")
    ] = False,
) -> None:
    """Make the pages of results and of experiments from published files: our tables beside the paper's."""
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
    for file, content in expected.items():  # of a figure, that it is there
        if not file.is_file() or (content is not None and file.read_text(encoding="utf-8") != content):
            raise Mismatch(f"{file} is not what {folder} says: write it with 'prood results {folder} --docs {docs}'")


def info(run: Annotated[Path, MODEL]) -> None:
    """What a run or a model holds: networks, data and settings, how far training came, and its results."""
    from prood import evaluation, models, training
    from prood.detector.answering import threshold_words
    from prood.report import results_table

    shown, results, file = console(), evaluation.read_results(run), models.model_path(run)
    # A folder of runs with their common results, such as the quickstart's, has no model of its own.
    facts = training.describe(run) if results is None or file.is_file() else {}
    if file.is_file():
        about = models.read_metadata(run)
        if about.threshold is not None:
            facts["threshold"] = threshold_words(about.threshold, about.tpr)
        if file.with_suffix(".md").is_file():
            facts["model card"] = str(file.with_suffix(".md"))
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        shown.print(f"[bold]{key:<13}[/] {escape(text)}", highlight=False, soft_wrap=True)
    if results is not None:
        shown.print(results_table(results))
